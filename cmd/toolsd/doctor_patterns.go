package main

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/toolsd/toolsd/index"
	"github.com/toolsd/toolsd/index/tool"
	"github.com/toolsd/toolsd/ipc"
	"github.com/toolsd/toolsd/watcher"
	"github.com/toolsd/toolsd/watcher/settings"
)

// checkPatterns finds what stands in pinned or in a category and is no tool's. A
// server whose tools are not known may have anything, so what could be one of
// its tools is not told.
func checkPatterns(p *patient) []finding {
	set := p.snapshot.Settings
	if p.toolsErr != nil || len(set.Pinned)+len(set.Categories) == 0 {
		return nil
	}
	k := p.known()
	var out []finding
	checked := 0
	for _, text := range set.Pinned {
		checked++
		if id, ok := tool.ParseID(text); ok && slices.Contains(k.ids, id) || k.mayBe(text, false) {
			continue
		}
		out = append(out, k.unmatched(p, "pinned", text))
	}
	for _, name := range slices.Sorted(maps.Keys(set.Categories)) {
		for _, text := range set.Categories[name].Tools {
			checked++
			if slices.ContainsFunc(k.ids, func(id tool.ID) bool { return index.Matches(text, id.Server, id.Name) }) || k.mayBe(text, true) {
				continue
			}
			out = append(out, k.unmatched(p, "categories."+name, text))
		}
	}
	if len(out) == 0 {
		out = append(out, good("", "nothing wrong with the %s in pinned and categories", count(checked, "entry", "entries")))
	}
	return out
}

// knownTools is what this caller could mean by a pattern.
type knownTools struct {
	ids     []tool.ID
	servers []string
	unknown []string // servers whose tools are not known, or not for certain
}

func (p *patient) known() knownTools {
	var k knownTools
	has := map[string]bool{}
	for _, e := range p.tools {
		k.ids = append(k.ids, e.Tool.ID)
		has[e.Tool.Server] = true
	}
	k.ids = append(k.ids, p.held...)
	starting := map[string]bool{}
	if p.status != nil {
		for _, s := range p.status.Servers {
			starting[s.Name] = s.State == ipc.StateStarting
		}
	}
	for _, s := range p.visible() {
		k.servers = append(k.servers, s.Name)
		if !has[s.Name] || starting[s.Name] {
			k.unknown = append(k.unknown, s.Name)
		}
	}
	return k
}

// mayBe reports whether a server whose tools are not known could have what a text
// means. A * stands for any characters, those between server and tool included.
func (k knownTools) mayBe(text string, pattern bool) bool {
	server, _, ok := strings.Cut(text, "::")
	if pattern && strings.Contains(server, "*") {
		return len(k.unknown) > 0
	}
	return ok && slices.ContainsFunc(k.unknown, func(name string) bool {
		return name == server || pattern && index.Matches(server+"::", name, "")
	})
}

// unmatched is a warning, but for what may be of a project that is not here.
func (k knownTools) unmatched(p *patient, key, text string) finding {
	shown := tool.CleanLine(text)
	server, name, ok := strings.Cut(text, "::")
	pattern := strings.ContainsAny(text, "*?")
	f := warning(p.settingAt(key, text), "%s names %s, and no tool is called so", key, shown)
	if pattern {
		f.Message = fmt.Sprintf("%s names %s, which matches no tool", key, shown)
	}
	near := k.near(text, server, name, key != "pinned")
	switch {
	case key == "pinned" && pattern:
		f.Message = fmt.Sprintf("pinned takes ids of tools one by one, and %s is a pattern", shown)
		f.Hint = "write each tool that you mean; `toolsd tools` lists them"
	case len(near) > 0:
		f.Hint = "did you mean " + strings.Join(near, " or ") + "?"
	case !ok:
		f.Hint = "an id is server::tool; `toolsd tools` lists them"
	case slices.Contains(k.servers, server):
		f.Hint = fmt.Sprintf("`toolsd tools %s` lists what it has", tool.CleanLine(server))
	case !strings.ContainsAny(server, "*?"):
		f.Status = statusInfo
		f.Message = fmt.Sprintf("%s names %s, and there is no server %s here", key, shown, tool.CleanLine(server))
		f.Hint = "nothing, if it is a server of another project; else take it out there"
	}
	return f
}

// near are the ids, or the beginnings of ids with a *, that a text is a slip of;
// with them a slip in the server's name alone.
func (k knownTools) near(text, server, name string, patterns bool) []string {
	if name != "" && !slices.Contains(k.servers, server) {
		var near []string
		for _, s := range tool.Nearest(server, k.servers, 2) {
			near = append(near, s+"::"+name)
		}
		return near
	}
	var candidates []string
	for _, id := range k.ids {
		full := id.String()
		if !strings.ContainsAny(text, "*?") {
			candidates = append(candidates, full)
			continue
		}
		for i, r := range id.Name { // export_gerber: export_*
			if patterns && strings.ContainsRune("_-./", r) {
				candidates = append(candidates, id.Server+"::"+id.Name[:i+1]+"*")
			}
		}
	}
	slices.Sort(candidates)
	return tool.Nearest(text, slices.Compact(candidates), 2)
}

// settingAt is where an entry of a setting stands.
func (p *patient) settingAt(key, text string) string {
	path := p.dirs.ConfigFile
	for _, v := range p.snapshot.Values {
		if v.Key == key && v.Origin == settings.FromManaged {
			path = p.dirs.ManagedConfig
		}
	}
	data, _ := watcher.ReadFile(path) // gone in the meantime: the file alone is named
	if line, col := settings.Place(data, key, text); line > 0 {
		return fmt.Sprintf("%s:%d:%d", path, line, col)
	}
	return path
}
