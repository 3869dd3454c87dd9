package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/toolsd/toolsd/cmd/toolsd/sample"
	"github.com/toolsd/toolsd/ipc"
)

// sampleVerb runs one of the sample servers on stdio, for the demo and the tests.
const sampleVerb = "sample-server"

func newSampleServerCommand(*app) *cobra.Command {
	return &cobra.Command{
		Use:    sampleVerb + " board|notes",
		Hidden: true,
		Args:   takes(1, 1, "board or notes"),
		RunE: func(cmd *cobra.Command, args []string) error {
			longLived()
			switch args[0] {
			case "board":
				return sample.Board().Serve(cmd.Context(), os.Stdin, os.Stdout)
			case "notes":
				return sample.Notes().Serve(cmd.Context(), os.Stdin, os.Stdout)
			}
			return usage(cmd, "there is no sample server %q", args[0])
		},
	}
}

// demo is one run of `toolsd demo`.
type demo struct {
	*app
	dir    string
	self   string
	client *ipc.Client
	answer demoAnswer
}

// demoAnswer is what the demo prints with --json.
type demoAnswer struct {
	OK     bool       `json:"ok"`
	Steps  []demoStep `json:"steps"`
	Tokens struct {
		All   int `json:"all_tools"`
		Fixed int `json:"fixed_tools"`
		Used  int `json:"used_tools"`
	} `json:"tokens"`
}

type demoStep struct {
	Name string  `json:"name"`
	MS   float64 `json:"ms"`
	OK   bool    `json:"ok"`
}

// demoLimit bounds the whole run; it takes a second.
const demoLimit = time.Minute

func newDemoCommand(a *app) *cobra.Command {
	return &cobra.Command{
		Use:   "demo",
		Short: "Show the main job end to end, on sample servers",
		Example: `  toolsd demo
  toolsd demo --json | jq .tokens`,
		Long: `Show the main job end to end: a daemon of its own, two sample servers that are
part of this program, search, call, and an edit of the config going live. It
needs no network, touches none of your files, and leaves nothing behind.`,
		Args: takes(0, 0, ""),
		RunE: func(cmd *cobra.Command, _ []string) error {
			ctx, cancel := context.WithTimeout(cmd.Context(), demoLimit)
			defer cancel()
			d := &demo{app: a}
			err := d.run(ctx)
			d.answer.OK = err == nil
			if a.json && err == nil {
				a.print(d.answer, nil)
			}
			return err
		},
	}
}

func (d *demo) run(ctx context.Context) (err error) {
	if d.self, err = os.Executable(); err != nil {
		return fmt.Errorf("finding this program: %w", err)
	}
	if d.dir, err = os.MkdirTemp("", "toolsd-demo-"); err != nil {
		return fmt.Errorf("making a directory for the demo: %w", err)
	}
	d.isolate()
	defer func() {
		if cleanErr := d.clean(); err == nil {
			err = cleanErr
		}
	}()
	for _, step := range []struct {
		name string
		do   func(context.Context) error
	}{
		{fmt.Sprintf("start a daemon with one server of %d tools", len(sample.Board().Tools)), d.start},
		{"search: gerber", d.search},
		{"list the categories", d.categories},
		{"activate: the whole definition of board::export_gerber", d.activate},
		{"call: create a board, place a part, export it", d.calls},
		{"edit the config: a second server goes live", d.edit},
		{"what an agent's context is spared", d.weigh},
	} {
		d.title(step.name)
		begin := time.Now()
		err := step.do(ctx)
		took := time.Since(begin)
		d.answer.Steps = append(d.answer.Steps, demoStep{step.name, float64(took.Microseconds()) / 1000, err == nil})
		if err != nil {
			return fmt.Errorf("demo: %s: %w", step.name, err)
		}
		if !d.json {
			d.out.line("  %s", d.out.style(green, fmt.Sprintf("ok, %.1f ms", float64(took.Microseconds())/1000)))
			if err := d.flush(); err != nil {
				return fmt.Errorf("writing the output: %w", err)
			}
		}
	}
	return nil
}

// isolate makes the daemon and everything it reads live in the demo's directory:
// no client file of the user is looked at, whatever variables point there.
func (d *demo) isolate() {
	for _, v := range os.Environ() {
		name, _, _ := strings.Cut(v, "=")
		if strings.HasPrefix(name, "XDG_") || strings.HasPrefix(name, "TOOLSD_") || strings.HasSuffix(name, "_CONFIG_DIR") ||
			strings.HasSuffix(name, "_HOME") && !strings.HasPrefix(name, "GO") {
			os.Unsetenv(name)
		}
	}
	home := filepath.Join(d.dir, "home")
	for name, value := range map[string]string{
		"TOOLSD_DIR": d.dir, "HOME": home, "USERPROFILE": home, "APPDATA": filepath.Join(home, "AppData", "Roaming"),
		"LOCALAPPDATA": filepath.Join(home, "AppData", "Local"), "ProgramData": filepath.Join(home, "ProgramData"),
	} {
		os.Setenv(name, value)
	}
}

// clean ends the daemon and removes the directory, also after Ctrl-C.
func (d *demo) clean() error {
	if d.client != nil {
		ctx, cancel := context.WithTimeout(context.Background(), stopTimeout)
		defer cancel()
		if _, err := d.client.Stop(ctx); err != nil {
			return fmt.Errorf("ending the demo's daemon: %w", err)
		}
		if err := waitUntilFree(ctx, filepath.Join(d.dir, "state", lockName)); err != nil {
			return err
		}
		d.client.Close()
	}
	if err := os.RemoveAll(d.dir); err != nil {
		return fmt.Errorf("removing the demo's directory: %w", err)
	}
	return nil
}

func (d *demo) title(text string) {
	if !d.json {
		d.out.line("%s", d.out.style(bold, "▸ "+text))
	}
}

func (d *demo) show(format string, args ...any) {
	if !d.json {
		d.out.line("  %s", cut(cleanLine(fmt.Sprintf(format, args...)), max(0, d.out.width-2)))
	}
}

// writeConfig writes a config.json with some of the sample servers.
func (d *demo) writeConfig(names ...string) error {
	servers := map[string]any{}
	for _, n := range names {
		servers[n] = map[string]any{"command": d.self, "args": []string{sampleVerb, n}}
	}
	data, err := json.MarshalIndent(map[string]any{"mcpServers": servers}, "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(d.dir, "config.json"), data, 0o600)
}

func (d *demo) start(ctx context.Context) error {
	if err := os.MkdirAll(filepath.Join(d.dir, "home"), 0o700); err != nil {
		return err
	}
	if err := d.writeConfig("board"); err != nil {
		return err
	}
	d.noStart = false
	client, err := d.connect(ctx)
	if err != nil {
		return err
	}
	d.client = client
	if _, err := d.until(ctx, "gerber", func(r *ipc.SearchResult) bool { return r.Count > 0 }); err != nil {
		return err
	}
	list, err := client.Tools(ctx, ipc.ToolsRequest{CWD: d.dir})
	if err != nil {
		return err
	}
	if list.Totals.Tools != len(sample.Board().Tools) {
		return fmt.Errorf("the server lists %d tools, %d are indexed", len(sample.Board().Tools), list.Totals.Tools)
	}
	d.show("%s indexed", count(list.Totals.Tools, "tool", "tools"))
	return nil
}

// until searches until a condition holds.
func (d *demo) until(ctx context.Context, query string, met func(*ipc.SearchResult) bool) (*ipc.SearchResult, error) {
	ctx, cancel := context.WithTimeout(ctx, waitForServers)
	defer cancel()
	ticker := time.NewTicker(5 * time.Millisecond) // fine enough for the timings that are shown
	defer ticker.Stop()
	for {
		r, err := d.client.Search(ctx, ipc.SearchRequest{Query: query, CWD: d.dir})
		if err != nil {
			return nil, err
		}
		if met(r) {
			return r, nil
		}
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return nil, fmt.Errorf("searching %q did not find what it should within %v: %w", query, waitForServers, ctx.Err())
		}
	}
}

func (d *demo) search(ctx context.Context) error {
	r, err := d.client.Search(ctx, ipc.SearchRequest{Query: "gerber", CWD: d.dir})
	if err != nil {
		return err
	}
	if r.Count == 0 || r.Matches[0].ToolID != "board::export_gerber" {
		return errors.New("board::export_gerber is not the first match")
	}
	for _, m := range r.Matches {
		d.show("%s: %s", m.ToolID, firstSentence(m.Description))
	}
	return nil
}

func (d *demo) categories(ctx context.Context) error {
	list, err := d.client.Categories(ctx, ipc.CategoriesRequest{CWD: d.dir})
	if err != nil {
		return err
	}
	if list.Total != len(sample.Board().Tools) || len(list.Categories) < 2 {
		return fmt.Errorf("%d tools in %d categories is not what the server has", list.Total, len(list.Categories))
	}
	for _, c := range list.Categories {
		d.show("%s: %s", c.Name, count(c.Tools, "tool", "tools"))
	}
	return nil
}

func (d *demo) activate(ctx context.Context) error {
	r, err := d.client.Activate(ctx, ipc.ActivateRequest{ToolIDs: []string{"board::export_gerber"}, CWD: d.dir})
	if err != nil {
		return err
	}
	if len(r.Tools) != 1 || len(arguments(r.Tools[0].Definition)) != 1 {
		return errors.New("the definition is not the one that the server sent")
	}
	for _, arg := range arguments(r.Tools[0].Definition) {
		d.show("argument %s: %s. %s", arg.Name, arg.form(), arg.Description)
	}
	return nil
}

func (d *demo) calls(ctx context.Context) error {
	for _, c := range []struct{ tool, args, expect string }{
		{"create_project", `{"name":"blinky","width_mm":40,"height_mm":20}`, "40 x 20 mm"},
		{"place_component", `{"reference":"D1","footprint":"LED_0805","value":"red","x":20,"y":10}`, "LED_0805"},
		{"export_gerber", `{}`, "blinky-F_Cu.gbr"},
	} {
		raw, err := d.client.Call(ctx, ipc.CallRequest{ToolID: "board::" + c.tool, Arguments: json.RawMessage(c.args), CWD: d.dir})
		if err != nil {
			return err
		}
		var r struct {
			Content []struct {
				Text string `json:"text"`
			} `json:"content"`
			IsError bool `json:"isError"`
		}
		if err := json.Unmarshal(raw, &r); err != nil || r.IsError || len(r.Content) != 1 || !strings.Contains(r.Content[0].Text, c.expect) {
			return fmt.Errorf("board::%s answered %.200s", c.tool, raw)
		}
		d.show("%s → %s", c.tool, strings.ReplaceAll(r.Content[0].Text, "\n", "; "))
	}
	return nil
}

// processOf is the process of a running server.
func (d *demo) processOf(ctx context.Context, name string) (int, error) {
	status, err := d.client.Status(ctx, ipc.StatusRequest{CWD: d.dir})
	if err != nil {
		return 0, err
	}
	for _, s := range status.Servers {
		if s.Name == name && s.PID > 0 {
			return s.PID, nil
		}
	}
	return 0, fmt.Errorf("server %s does not run", name)
}

func (d *demo) edit(ctx context.Context) error {
	before, err := d.processOf(ctx, "board")
	if err != nil {
		return err
	}
	if err := d.writeConfig("board", "notes"); err != nil {
		return err
	}
	r, err := d.until(ctx, "remember a note", func(r *ipc.SearchResult) bool {
		return r.Count > 0 && r.Matches[0].Server == "notes"
	})
	if err != nil {
		return err
	}
	if after, err := d.processOf(ctx, "board"); err != nil || after != before {
		return fmt.Errorf("the edit restarted the other server: process %d, then %d (%v)", before, after, err)
	}
	d.show("%s is found; the other server runs on as process %d", r.Matches[0].ToolID, before)
	return nil
}

func (d *demo) weigh(ctx context.Context) error {
	list, err := d.client.Tools(ctx, ipc.ToolsRequest{CWD: d.dir})
	if err != nil {
		return err
	}
	t := &d.answer.Tokens
	t.All, t.Fixed = list.Context.AllTools, list.Context.FixedTools
	for _, tool := range list.Tools {
		switch tool.ToolID {
		case "board::create_project", "board::place_component", "board::export_gerber":
			t.Used += tool.Tokens
		}
	}
	if t.Fixed == 0 || t.Used == 0 || t.All <= t.Fixed+t.Used {
		return fmt.Errorf("the figures make no sense: %+v", *t)
	}
	d.show("all %d definitions: %s tokens", list.Totals.Tools, thousands(t.All))
	d.show("toolsd's own and the 3 tools that were used: %s tokens", thousands(t.Fixed+t.Used))
	d.show("spared: %s tokens; a token is counted as 4 characters of a definition", thousands(t.All-t.Fixed-t.Used))
	return nil
}
