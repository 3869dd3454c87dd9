package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/toolsd/toolsd/daemon"
	"github.com/toolsd/toolsd/daemon/trust"
	"github.com/toolsd/toolsd/index"
	"github.com/toolsd/toolsd/index/tool"
	"github.com/toolsd/toolsd/ipc"
	"github.com/toolsd/toolsd/platform"
	"github.com/toolsd/toolsd/watcher"
)

// readTools reads the definitions of the visible tools from a copy of the index: a
// daemon that runs has the file for itself, and to ask it for definitions would
// count as having shown them to somebody.
func (p *patient) readTools() {
	if p.dirsErr != nil {
		return
	}
	visible := map[string]watcher.Server{}
	for _, s := range p.visible() {
		// A server that waits for an approval has no tools to speak of; one that
		// had some before its definition changed is the daemon's to hide.
		if p.unsure(s.Source.Root) || p.barred(s) {
			continue
		}
		visible[s.Key] = s
	}
	if p.status != nil {
		for _, s := range p.status.Servers {
			if s.State == "pending" || s.State == "disabled" {
				for _, mine := range p.visible() {
					if mine.Name == s.Name {
						delete(visible, mine.Key)
					}
				}
			}
		}
	}
	// A daemon may write while the file is copied: then the copy is not whole, and
	// a second one most likely is.
	for range 3 {
		p.tools, p.toolsErr = copiedTools(p.ctx, filepath.Join(p.dirs.Cache, indexName), func(key string, t *tool.Tool) bool {
			s, ok := visible[key]
			return ok && s.Passes(t.Name)
		})
		if p.toolsErr == nil {
			break
		}
	}
	if set := p.snapshot.Settings.Trust.Tools; set == "hold" || p.snapshot.SettingsUnread && p.decided.Rules().Hold {
		p.tools = slices.DeleteFunc(p.tools, func(e index.Entry) bool {
			held := p.decided.Held(trust.Subject(e.Key), e.Tool)
			if held {
				p.held = append(p.held, e.Tool.ID)
			}
			return held
		})
	}
}

func copiedTools(ctx context.Context, path string, visible index.View) ([]index.Entry, error) {
	stat, err := os.Lstat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, nil
	case err == nil && !stat.Mode().IsRegular(): // a pipe would be waited for
		err = errors.New("it is no regular file")
	}
	if err != nil {
		return nil, err
	}
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp("", "toolsd-doctor-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	file := filepath.Join(dir, indexName)
	if err := os.WriteFile(file, data, 0o600); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, indexCheck)
	defer cancel()
	if err := platform.RunAgain(ctx, daemon.CheckVerb, file); err != nil {
		return nil, err
	}
	x := index.Open(index.Options{
		Path: file, Check: func(context.Context, string) error { return nil }, // just done
		Expose: func(id tool.ID) string { return id.Server + "_" + id.Name },
		Log:    slog.New(slog.DiscardHandler),
	})
	defer x.Close()
	var out []index.Entry
	for e := range x.Snapshot().All(visible) {
		out = append(out, e)
	}
	return out, nil
}

// heavyTool is where one definition begins to be felt: an agent that activates ten
// of these spends a quarter of a window of 200,000 tokens on them.
const heavyTool = 5000

// longDescription is what the APIs of models take at least: OpenAI's refuses
// functions with more.
const longDescription = 1024

// longProperty is what Anthropic's API takes as the name of an argument, made of
// letters, digits, and these.
const longProperty, propertySigns = 64, "_.-"

// spelledWith reports whether a name is made of ASCII letters, digits, and the signs.
func spelledWith(name, signs string) bool {
	return name != "" && !strings.ContainsFunc(name, func(r rune) bool {
		letter := 'a' <= r && r <= 'z' || 'A' <= r && r <= 'Z' || '0' <= r && r <= '9'
		return !letter && !strings.ContainsRune(signs, r)
	})
}

func checkSchemas(p *patient) []finding {
	if p.toolsErr != nil {
		return nil // checkIndexFile tells of the file
	}
	var out []finding
	for _, e := range p.tools {
		for _, f := range schemaFaults(e.Tool) {
			f.Subject = e.Tool.ID.String()
			if f.Hint == "" {
				f.Hint = "it is the server's fault: tell its authors; toolsd passes it on as it is"
			}
			out = append(out, f)
		}
	}
	switch {
	case len(p.tools) == 0:
		out = append(out, note("", "no tools are known yet"))
	case len(out) == 0:
		out = append(out, good("", "%s, all fit", count(len(p.tools), "tool", "tools")))
	}
	return out
}

// schemaFaults is what clients or the APIs of models stumble over in one tool.
func schemaFaults(t *tool.Tool) []finding {
	var out []finding
	var object map[string]json.RawMessage
	if err := json.Unmarshal(t.InputSchema, &object); err != nil || object == nil {
		what := "has no input schema"
		if len(t.InputSchema) > 0 && string(t.InputSchema) != "null" {
			what = "has an input schema that is no object"
		}
		return append(out, failure("", "%s, and clients that check a list drop the whole list for it", what))
	}
	var kind string
	if json.Unmarshal(object["type"], &kind); kind != "object" {
		said := strings.TrimSpace(string(object["type"]))
		if said == "" {
			said = "nothing"
		}
		out = append(out, failure("", `the root of its schema says %s where "type": "object" must stand; clients and models refuse it`, said))
	}
	for _, word := range []string{"anyOf", "oneOf", "allOf"} {
		if _, there := object[word]; there {
			out = append(out, warning("", "the root of its schema has %s, which Anthropic's API refuses and other clients drop", word))
		}
	}
	if err := t.SchemaError(); err != nil {
		out = append(out, warning("", "its schema cannot be used to check arguments: %v", err))
	}
	var properties map[string]json.RawMessage
	if raw, there := object["properties"]; there && json.Unmarshal(raw, &properties) != nil {
		out = append(out, failure("", `"properties" of its schema is no object; clients that check a list drop the whole list for it`))
	}
	for name := range properties {
		if !spelledWith(name, propertySigns) || len(name) > longProperty {
			out = append(out, warning("", "an argument is called %s, which models' APIs refuse (letters, digits, _ . - and at most 64)", strconv.Quote(tool.CleanLine(name))))
			break // one says it; maps have no order
		}
	}
	if t.Tokens > heavyTool {
		out = append(out, warning("", "its definition weighs %s, which every agent that activates it pays", count(t.Tokens, "token", "tokens")).do("leave it to agents that need it: do not list it under pinned"))
	}
	if n := utf8.RuneCountInString(t.Description); n > longDescription {
		out = append(out, note("", "its description has %s characters; OpenAI's API takes %s", thousands(n), thousands(longDescription)).do("nothing, unless your agent uses that API and drops the tool"))
	}
	return out
}

// directLimit is what the APIs of models take as the name of a tool, and direct is
// how clients build it for a server that they start themselves. It may hold
// letters, digits, and these.
const directLimit, directSigns = 64, "_-"

// checkNames is about names as clients build them without toolsd, and tells how
// toolsd shows the tool instead.
func checkNames(p *patient) []finding {
	if p.toolsErr != nil || len(p.tools) == 0 {
		return nil
	}
	var remembered map[string]string
	if data, err := platform.ReadState(filepath.Join(p.dirs.State, "names.json")); err == nil {
		_ = json.Unmarshal(data, &remembered) // checkStateFiles tells of a damaged one
	}
	names := tool.NewNames(remembered)
	var out []finding
	for _, e := range p.tools {
		id := e.Tool.ID
		exposed := names.Of(id)
		full := "mcp__" + id.Server + "__" + id.Name
		var why string
		switch {
		case !spelledWith(id.Name, directSigns):
			why = "its name holds characters that models' APIs refuse"
		case !spelledWith(id.Server, directSigns):
			why = "the name of its server holds characters that models' APIs refuse"
		case utf8.RuneCountInString(full) > directLimit:
			why = fmt.Sprintf("%s has %d characters, and models' APIs take %d", full, utf8.RuneCountInString(full), directLimit)
		default:
			continue
		}
		out = append(out, note(id.String(), "%s; through toolsd it is %s", why, exposed))
	}
	if len(out) == 0 {
		out = append(out, good("", "%s, all short enough", count(len(p.tools), "name", "names")))
	}
	return out
}

// checkTexts tells what the daemon flags. Without one, nobody knows here whose tools
// may be spoken of.
func checkTexts(p *patient) []finding {
	if p.status == nil {
		return nil
	}
	list, err := p.client.Trust(p.ctx, ipc.TrustRequest{Action: ipc.TrustShow, CWD: p.cwd})
	if err != nil {
		return []finding{warning("", "what the daemon flags is not known: %v", err)}
	}
	var out []finding
	for _, s := range list.Servers {
		for _, f := range s.Flagged {
			out = append(out, warning(s.Name, "the text of %s", f).do("`toolsd trust %s` lists what is flagged, `toolsd distrust %s` stops it", s.Name, s.Name))
		}
	}
	if len(out) == 0 {
		out = append(out, good("", "none that is flagged"))
	}
	return out
}

// Limits of the kernel below which watching is likely to fail: a desktop's own
// programs use some 60 of the one, and the watcher some 100 of the other.
const (
	fewInstances = 64
	fewWatches   = 8192
)

func checkInotify(p *patient) []finding {
	var out []finding
	problems := p.snapshot.Problems
	if p.status != nil {
		problems = p.status.Problems
	}
	for _, problem := range problems {
		if problem.File == "" && strings.HasPrefix(problem.Message, watchFault) {
			out = append(out, failure("", "%s", problem.Message).do("%s", problem.Hint))
		}
	}
	if runtime.GOOS != "linux" {
		return out
	}
	used, counted := platform.InotifyInstances()
	for _, limit := range []struct {
		name string
		few  int
	}{{"max_user_instances", fewInstances}, {"max_user_watches", fewWatches}} {
		path := "/proc/sys/fs/inotify/" + limit.name
		data, err := os.ReadFile(path)
		if err != nil {
			continue
		}
		n, err := strconv.Atoi(strings.TrimSpace(string(data)))
		hint := fmt.Sprintf("raise it: echo fs.inotify.%s=%d | sudo tee /etc/sysctl.d/60-inotify.conf && sudo sysctl --system", limit.name, max(8*limit.few, 2*n))
		instances := limit.name == "max_user_instances" && counted
		switch {
		case err != nil:
		case instances && used*10 >= n*9:
			out = append(out, warning(path, "%d of your %d watchers are in use; when they run out, edits are seen after 2 s instead of at once", used, n).do("%s", hint))
		case n < limit.few:
			out = append(out, warning(path, "it is %s; when it is reached, edits are seen after 2 s instead of at once", thousands(n)).do("%s", hint))
		case instances:
			out = append(out, good(path, "%d of %s in use", used, thousands(n)))
		default:
			out = append(out, good(path, "%s", thousands(n)))
		}
	}
	return out
}

// slowShell is where a profile begins to be felt: servers start when the daemon
// has its environment.
const slowShell = 2 * time.Second

func checkLoginShell(p *patient) []finding {
	took := p.shellTook.Round(10 * time.Millisecond)
	switch {
	case p.shell.Problem != "":
		return []finding{warning(p.shell.Origin, "%s", p.shell.Problem).do("try it: `$SHELL -l -i -c 'command -v npx'`; servers get what is found in %s", p.shell.Origin)}
	case p.shellTook > slowShell:
		return []finding{warning(p.shell.Origin, "it took %v to start, and so long servers wait when the daemon starts", took).do("see what your profile does: `time $SHELL -l -i -c exit`")}
	}
	return []finding{good(p.shell.Origin, "answered in %v", took)}
}
