package clientconfig

import (
	"fmt"
	"path"
	"slices"
	"strings"
)

// roots are the places where the clients keep their servers. strong ones are so
// peculiar that they mean servers in any file; the others do so only in a file
// that is about servers.
var roots = []struct {
	pointer string
	strong  bool
	owner   string // as a problem names it
}{
	{"mcpServers", true, "Claude Code and most others"},
	{"context_servers", true, "Zed"},
	{"mcp_servers", true, "Codex"},
	{"amp.mcpServers", true, "Amp"},
	{"mcp.servers", true, "VS Code's settings"},
	{"servers", false, "VS Code"},
	{"mcp", false, "opencode"},
	{"extensions", false, "Goose"},
}

// roots reads the servers under all roots of the file. An error means that the
// file as a whole is not usable.
func (d *decoder) roots(file *node) error {
	d.duplicates(file, "")
	own := ownRoots(d.loc, d.client)
	found := false
	for _, pointer := range own {
		if pointer == "" {
			continue
		}
		n := file.lookup(pointer)
		switch {
		case n == nil:
			continue
		case n.kind == kNull:
		case n.kind == kMap:
			d.servers(n, d.loc.Root)
		case n.kind == kList && (len(n.items) == 0 || slices.ContainsFunc(n.items, func(i *node) bool { return i.kind == kMap })):
			if d.client.Slug != "continue" && len(n.items) > 0 {
				d.problem(n.start, "", fmt.Sprintf("%s is a list; %s reads an object of servers by name", quoted(pointer), d.client.Name), "")
			}
			d.servers(n, d.loc.Root)
		default:
			return &syntaxAt{off: n.start, message: fmt.Sprintf("%s is %s, not an object of servers by name", quoted(pointer), n.kind)}
		}
		found = true
	}
	for _, r := range roots {
		if slices.Contains(own, r.pointer) || d.loc.Settings && !r.strong {
			continue
		}
		n := file.lookup(r.pointer)
		if !holdsServers(n) {
			continue
		}
		found = true
		d.problem(n.start, "", fmt.Sprintf("the servers stand under %s, the root of %s; %s reads %s",
			quoted(r.pointer), r.owner, d.client.Name, quoted(d.loc.Pointer)), fmt.Sprintf("rename the key to %s", quoted(d.loc.Pointer)))
		d.servers(n, d.loc.Root)
	}
	if !found && !d.loc.Settings {
		d.bare(file)
	}
	if d.client.Slug == "claude-code" {
		d.claude(file)
	}
	d.switchedOff(file)
	return nil
}

// ownRoots are the pointers to servers that need no remark in this file.
func ownRoots(loc Location, client Client) []string {
	own := []string{loc.Pointer}
	for _, p := range client.Also {
		own = appendNew(own, p)
	}
	return own
}

// bare reads a file whose top level is the map of servers.
func (d *decoder) bare(file *node) {
	allowed := slices.Contains(d.client.Also, "")
	found := false
	for _, m := range file.members {
		if !isEntry(m.val) {
			continue
		}
		if !found && !allowed {
			d.problem(m.at, "", fmt.Sprintf("the servers stand at the top of the file; %s reads %s", d.client.Name, quoted(d.loc.Pointer)),
				fmt.Sprintf("put them into an object with the key %s", quoted(d.loc.Pointer)))
		}
		found = true
		d.server(m.key, m.at, m.val, d.loc.Root)
	}
	if found {
		return
	}
	for _, m := range file.members {
		if m.val.kind == kMap && len(m.val.members) > 0 {
			d.problem(m.at, "", fmt.Sprintf("the file has no %s, so it defines no servers", quoted(d.loc.Pointer)), "")
			return
		}
	}
}

// isEntry reports whether n looks like the definition of a server.
func isEntry(n *node) bool {
	for _, key := range []string{"command", "cmd", "url", "serverUrl", "httpUrl", "uri"} {
		if v := n.get(key); v != nil && v.kind != kNull {
			return true
		}
	}
	t := n.get("transport")
	return t != nil && isEntry(t)
}

// holdsServers reports whether n looks like a map or a list of servers.
func holdsServers(n *node) bool {
	if n == nil {
		return false
	}
	return slices.ContainsFunc(n.members, func(m member) bool { return isEntry(m.val) }) ||
		slices.ContainsFunc(n.items, func(i *node) bool { return isEntry(i) && i.get("name") != nil })
}

// claude reads what Claude Code's user file says about single projects.
func (d *decoder) claude(file *node) {
	off := d.names(file.get("disabledMcpServers"))
	for i := range d.out.Servers {
		if slices.Contains(off, d.out.Servers[i].Name) {
			d.out.Servers[i].Disabled = true
		}
	}
	projects := file.get("projects")
	if projects == nil || projects.kind != kMap || d.loc.Scope != User {
		return
	}
	for _, m := range projects.members {
		if m.val.kind != kMap {
			continue
		}
		servers := m.val.get("mcpServers")
		off := d.names(m.val.get("disabledMcpServers"))
		rejected := d.names(m.val.get("disabledMcpjsonServers"))
		if (servers == nil || servers.kind == kNull) && len(off)+len(rejected) == 0 {
			continue
		}
		root, ok := cleanRoot(m.key)
		if !ok {
			if holdsServers(servers) {
				d.problem(m.at, "", "the servers of a project whose path is not absolute are left out", "")
			}
			continue
		}
		before := len(d.out.Servers)
		if servers != nil {
			switch servers.kind {
			case kMap, kList:
				d.servers(servers, root)
			case kNull:
			default:
				d.problem(servers.start, "", fmt.Sprintf(`"mcpServers" of a project is %s, not an object of servers by name`, servers.kind), "")
			}
		}
		before = min(before, len(d.out.Servers))
		for _, name := range off {
			i := slices.IndexFunc(d.out.Servers[before:], func(s Server) bool { return s.Name == name })
			if i >= 0 {
				d.out.Servers[before+i].Disabled = true
			} else {
				d.out.Rejected = append(d.out.Rejected, Rejection{root, name, User})
			}
		}
		for _, name := range rejected {
			d.out.Rejected = append(d.out.Rejected, Rejection{root, name, Project})
		}
	}
}

// switchedOff applies what the file says about its servers outside of their
// entries: Gemini's lists and opencode's tool switches.
func (d *decoder) switchedOff(file *node) {
	switch d.client.Slug {
	case "gemini", "qwen":
		allowed := d.names(firstOf(file.lookup("mcp.allowed"), file.get("allowMCPServers")))
		excluded := d.names(firstOf(file.lookup("mcp.excluded"), file.get("excludeMCPServers")))
		for i := range d.out.Servers {
			s := &d.out.Servers[i]
			if len(allowed) > 0 && !slices.Contains(allowed, s.Name) || slices.Contains(excluded, s.Name) {
				s.Disabled = true
			}
		}
	case "opencode", "kilo":
		tools := file.get("tools")
		if tools == nil || tools.kind != kMap {
			return
		}
		if len(tools.members) > maxNames {
			d.problem(tools.start, "", fmt.Sprintf(`"tools" holds more than %d names, and none of them counts`, maxNames), "")
			return
		}
		for _, m := range tools.members {
			if m.val.kind != kBool {
				continue
			}
			for i := range d.out.Servers {
				s := &d.out.Servers[i]
				p := toolPattern(s.Name, m.key)
				switch {
				case p == "":
				case m.val.text == "false":
					s.Exclude = appendNew(s.Exclude, p)
				default: // a later line switches on again what an earlier one switched off
					s.Exclude = slices.DeleteFunc(s.Exclude, func(e string) bool { return p == "*" || p == e })
				}
			}
		}
	}
}

// toolPattern is the part of a pattern over server_tool that is about the tools
// of this server, or "".
func toolPattern(server, pattern string) string {
	prefix := strings.Map(func(r rune) rune {
		if r == '-' || r == '_' || r >= '0' && r <= '9' || r|0x20 >= 'a' && r|0x20 <= 'z' {
			return r
		}
		return '_'
	}, server) + "_"
	if rest, ok := strings.CutPrefix(pattern, prefix); ok {
		return rest
	}
	stem, ok := strings.CutSuffix(pattern, "*")
	if !ok {
		return ""
	}
	if all, _ := path.Match(stem+"*", prefix); all {
		return "*"
	}
	return ""
}

// names reads a list of names; a single name counts as a list of one.
func (d *decoder) names(n *node) []string {
	if n == nil {
		return nil
	}
	if n.kind == kString {
		return []string{n.text}
	}
	var names []string
	for _, item := range n.items {
		if item.kind == kString {
			names = append(names, item.text)
		}
	}
	return names
}

func firstOf(nodes ...*node) *node {
	for _, n := range nodes {
		if n != nil && n.kind != kNull {
			return n
		}
	}
	return nil
}

func appendNew(list []string, s string) []string {
	if slices.Contains(list, s) {
		return list
	}
	return append(list, s)
}
