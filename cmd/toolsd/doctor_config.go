package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/toolsd/toolsd/daemon/trust"
	"github.com/toolsd/toolsd/index/tool"
	"github.com/toolsd/toolsd/ipc"
	"github.com/toolsd/toolsd/platform"
	"github.com/toolsd/toolsd/watcher"
	"github.com/toolsd/toolsd/watcher/clientconfig"
)

// watchFault begins the one problem of config files that is about none of them.
const watchFault = "watching config files for changes"

// hugeFile is where a file begins to cost: it is read whole at each of its changes,
// and a client that keeps its history in it changes it all the time.
const hugeFile = 8 << 20

// clientFile is a file of the user's that exists, as its client would read it.
type clientFile struct {
	loc     clientconfig.Location
	size    int64
	content clientconfig.Content
	err     error // it cannot be used as a whole
}

// readClientFiles reads the files of all clients that are not switched off, side by
// side: one that hangs, on a file system that does not answer, is told by its err
// when ctx ends.
func readClientFiles(ctx context.Context, env clientconfig.Env, on map[string]bool, read func(path string) ([]byte, error)) []clientFile {
	var out []clientFile
	var locs []clientconfig.Location
	var answers []chan []clientFile
	for _, loc := range clientconfig.UserFiles(env) {
		if wanted, set := on[loc.Client]; set && !wanted {
			continue
		}
		answer := make(chan []clientFile, 1)
		locs, answers = append(locs, loc), append(answers, answer)
		go func() { answer <- readClientFile(loc, read) }() // one that hangs ends with the process
	}
	for i, answer := range answers {
		select {
		case files := <-answer:
			out = append(out, files...)
		case <-ctx.Done():
			select {
			case files := <-answer:
				out = append(out, files...)
			default:
				out = append(out, clientFile{loc: locs[i], err: errors.New("reading it takes too long")})
			}
		}
	}
	return out
}

// readClientFile reads what is at one place, none or, of a pattern, several files.
func readClientFile(loc clientconfig.Location, read func(path string) ([]byte, error)) []clientFile {
	paths := []string{loc.Path}
	if loc.Glob {
		entries, _ := os.ReadDir(filepath.Dir(loc.Path)) // without it there are none
		paths = loc.Matches(entries)
	}
	var out []clientFile
	for _, path := range paths {
		stat, err := os.Stat(path)
		if err != nil {
			continue
		}
		f := clientFile{loc: loc.At(path), size: stat.Size()}
		data, err := read(path)
		if err == nil {
			f.content, err = clientconfig.Read(f.loc, data)
		}
		if !errors.Is(err, clientconfig.ErrEmpty) {
			f.err = err
		}
		out = append(out, f)
	}
	return out
}

// checkConfigFiles repeats what the daemon, or without one a reading of our own,
// found. What took a server away is a failure; the rest is a warning.
func checkConfigFiles(p *patient) []finding {
	if !p.snapshot.Complete {
		return []finding{failure("", "the config files could not be read within %v: one is on a file system that does not answer", configRead).do("see what hangs: ls -l ~")}
	}
	problems := p.snapshot.Problems
	if p.status != nil {
		problems = p.status.Problems
	}
	type entry struct{ file, name string }
	served, barred := map[entry]bool{}, map[entry]bool{}
	for _, s := range p.snapshot.Servers {
		for _, source := range s.Sources {
			served[entry{source.File, s.Declared}], barred[entry{source.File, s.Declared}] = true, p.barred(s)
		}
	}
	var out []finding
	for _, problem := range problems {
		if problem.File == "" || problem.Root != "" && !watcher.Visible(p.cwd, problem.Root) {
			continue
		}
		at := entry{problem.File, problem.Server}
		if (problem.Root != "" || problem.Server != "") && p.unsure(problem.Root) || barred[at] {
			problem = problem.Withheld()
		}
		subject := problem.File
		if problem.Line > 0 {
			subject += fmt.Sprintf(":%d:%d", problem.Line, max(1, problem.Col))
		}
		message := problem.Message
		if problem.Server != "" {
			message = problem.Server + ": " + message
		}
		f := warning(subject, "%s", message)
		if problem.Server != "" && !served[at] || p.unusable(problem.File) {
			f.Status = statusFail
		}
		f.Hint = problem.Hint
		if f.Hint == "" {
			f.Hint = "correct it there; an edit is live within a second"
		}
		out = append(out, f)
	}
	if len(out) == 0 {
		out = append(out, good("", "no fault in %s", count(len(p.clients), "file", "files")))
	}
	return out
}

// unusable reports whether a file cannot be used as a whole.
func (p *patient) unusable(path string) bool {
	return slices.ContainsFunc(p.clients, func(f clientFile) bool { return f.loc.Path == path && f.err != nil }) ||
		!slices.ContainsFunc(p.clients, func(f clientFile) bool { return f.loc.Path == path }) &&
			!slices.ContainsFunc(p.snapshot.Servers, func(s watcher.Server) bool {
				return slices.ContainsFunc(s.Sources, func(source clientconfig.Source) bool { return source.File == path })
			}) && path != p.dirs.ManagedConfig
}

func checkClientFiles(p *patient) []finding {
	var out []finding
	for _, f := range p.clients {
		servers := 0
		for _, s := range f.content.Servers {
			if !clientconfig.IsSelf(s) {
				servers++
			}
		}
		name := f.loc.Client
		if c, known := clientconfig.ClientOf(f.loc.Client); known {
			name = c.Name
		}
		switch {
		case f.size > hugeFile && f.err == nil:
			out = append(out, warning(f.loc.Path, "%s keeps %s in it, which is read at each of its changes", name, size(f.size)).do("most of it is history: see whether %s can clean it up", name))
		case f.err == nil && servers > 0:
			out = append(out, good(f.loc.Path, "%s: %s", name, count(servers, "server", "servers")))
		}
	}
	if len(p.snapshot.Servers) == 0 && p.snapshot.Complete {
		out = append(out, warning("", "no client on this machine has a server configured, so there are no tools").do(
			"add one to a client, or under mcpServers in %s; `toolsd demo` shows what toolsd does", p.dirs.ConfigFile))
	}
	return out
}

// place is where a server is defined.
func place(s clientconfig.Source) string {
	if s.Line == 0 {
		return s.File
	}
	return fmt.Sprintf("%s:%d:%d", s.File, s.Line, max(1, s.Col))
}

// checkVariables is about entries that cannot be served as they stand.
func checkVariables(p *patient) []finding {
	var out []finding
	for _, s := range p.mine() {
		if s.Problem == "" {
			continue
		}
		p.reported[s.Name] = true
		secrets := trust.NewRedactor(s.Secrets)
		f := failure(s.Name, "%s: %s", place(s.Source), secrets.Redact(s.Problem))
		switch {
		case s.Unsupported:
			f.Status = statusInfo // its client serves it, and nobody can change that
		case strings.HasPrefix(s.Problem, "needs "):
			f.Message += ", not set in the environment from " + p.shell.Origin
		}
		out = append(out, f.do("%s", secrets.Redact(s.Hint)))
	}
	if len(out) == 0 {
		out = append(out, good("", "none is missing"))
	}
	return out
}

func checkCommands(p *patient) []finding {
	var out []finding
	found := 0
	for _, s := range p.mine() {
		if s.Transport != clientconfig.Stdio || s.Problem != "" {
			continue
		}
		env := p.shell
		if path, own := s.Env["PATH"]; own { // the server itself would look there
			env = platform.Environ{Vars: maps.Clone(env.Vars), Origin: "the entry's own env"}
			env.Vars["PATH"] = path
		}
		_, err := env.LookPath(s.Command, s.Dir)
		if err == nil {
			found++
			continue
		}
		p.reported[s.Name] = true
		secrets := trust.NewRedactor(s.Secrets)
		f := failure(s.Name, "%s: %s", place(s.Source), secrets.Redact(err.Error()))
		if e, is := errors.AsType[*platform.NotFoundError](err); is {
			f.Hint = secrets.Redact(e.Hint())
		}
		out = append(out, f)
	}
	if len(out) == 0 {
		out = append(out, good("", "%s found", count(found, "program", "programs")))
	}
	return out
}

func checkServers(p *patient) []finding {
	if p.status == nil {
		return []finding{note("", "not asked, since no daemon answers").do("`toolsd status` starts one and shows its servers")}
	}
	var out []finding
	ready := 0
	for _, s := range p.status.Servers {
		switch s.State {
		case ipc.StateReady, ipc.StateLazy:
			ready++
			for _, note := range s.Notes {
				out = append(out, warning(s.Name, "%s", note).do("%s", firstOf(s.Hint, "`toolsd logs "+s.Name+"` shows what it wrote")))
			}
		case ipc.StateFailed, ipc.StateBackoff:
			if p.reported[s.Name] {
				continue
			}
			out = append(out, failure(s.Name, "%s since %s ago: %s", s.State, ago(s.Since), s.Problem).do("%s",
				firstOf(s.Hint, "`toolsd logs "+s.Name+"` shows what it wrote, `toolsd restart "+s.Name+"` tries again")))
		}
	}
	if len(out) == 0 {
		out = append(out, good("", "%d of %s ready", ready, count(len(p.status.Servers), "server", "servers")))
	}
	return out
}

func firstOf(texts ...string) string {
	for _, t := range texts {
		if t != "" {
			return t
		}
	}
	return ""
}

// checkTrust names projects' servers, and nothing of what they would run.
func checkTrust(p *patient) []finding {
	var out []finding
	if p.status != nil {
		for _, s := range p.status.Servers {
			if s.State == ipc.StatePending {
				out = append(out, waiting(s.Name, s.Sources...))
			}
		}
		if len(out) == 0 {
			out = append(out, good("", "nothing waits"))
		}
		return out
	}
	for _, s := range p.visible() {
		if p.barred(s) {
			out = append(out, waiting(s.Name, s.Source.File))
		}
		if s.Source.Scope == clientconfig.Project {
			out = append(out, note(tool.CleanLine(s.Name), "came with the project (%s); the daemon knows whether you approved it", s.Source.File).do("`toolsd trust list`"))
		}
	}
	return out
}

func waiting(server string, files ...string) finding {
	server = tool.CleanLine(server)
	return warning(server, "waits for your approval (%s)", strings.Join(files, ", ")).do("`toolsd trust %s` shows what it would run", server)
}

func checkDuplicates(p *patient) []finding {
	servers := slices.DeleteFunc(p.visible(), func(s watcher.Server) bool { return s.Disabled || s.Rejected || s.Problem != "" })
	taken := map[int]bool{}
	var out []finding
	for i, a := range servers {
		if taken[i] {
			continue
		}
		same := []watcher.Server{a}
		for j := i + 1; j < len(servers); j++ {
			if !taken[j] && clientconfig.Equal(a.Server, servers[j].Server) {
				taken[j] = true
				same = append(same, servers[j])
			}
		}
		if len(same) == 1 {
			continue
		}
		var names, places []string
		for _, s := range same {
			names = append(names, tool.CleanLine(s.Name))
			places = append(places, place(s.Source))
		}
		out = append(out, warning(strings.Join(names, ", "), "one definition under %d names (%s): each runs, and each tool is there %d times", len(same), strings.Join(places, ", "), len(same)).do(
			"keep one of the names, or give them all the same"))
	}
	if len(out) == 0 {
		out = append(out, good("", "none"))
	}
	return out
}

// checkDirect finds clients that mount toolsd and still start servers of their own
// that toolsd serves as well.
func checkDirect(p *patient) []finding {
	self, direct := map[string]string{}, map[string]map[string]bool{}
	for _, f := range p.clients {
		if f.loc.Client == "toolsd" {
			continue
		}
		for _, s := range f.content.Servers {
			switch {
			case s.Source.Root != "" || s.Disabled:
			case clientconfig.IsSelf(s):
				self[f.loc.Client] = f.loc.Path
			default:
				if direct[f.loc.Client] == nil {
					direct[f.loc.Client] = map[string]bool{}
				}
				direct[f.loc.Client][s.Name] = true
			}
		}
	}
	var out []finding
	for _, slug := range slices.Sorted(maps.Keys(self)) {
		var names []string
		keys := map[string]bool{}
		for _, s := range p.mine() {
			if s.Problem == "" && direct[slug][s.Declared] && slices.ContainsFunc(s.Sources, func(source clientconfig.Source) bool { return source.Client == slug }) {
				names = append(names, s.Name)
				keys[s.Key] = true
			}
		}
		if len(names) == 0 {
			continue
		}
		tools, tokens := 0, 0
		for _, e := range p.tools {
			if keys[e.Key] {
				tools++
				tokens += e.Tool.Tokens
			}
		}
		lost := "their definitions load into its context although toolsd has them"
		if tools > 0 {
			lost = fmt.Sprintf("the definitions of %s load into its context although toolsd has them: %s lost in each session", count(tools, "tool", "tools"), count(tokens, "token", "tokens"))
		}
		name := slug
		if c, known := clientconfig.ClientOf(slug); known {
			name = c.Name
		}
		out = append(out, warning(self[slug], "%s mounts toolsd and starts %s itself as well (%s); %s", name, count(len(names), "server", "servers"), strings.Join(names, ", "), lost).do(
			"`toolsd adopt %s --dry-run` shows how they move; `toolsd adopt %s` does it", slug, slug))
	}
	if len(out) == 0 {
		out = append(out, good("", "none"))
	}
	return out
}
