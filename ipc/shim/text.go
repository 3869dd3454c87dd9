package shim

import (
	"encoding/json"
	"fmt"
	"strings"

	"github.com/toolsd/toolsd/index/tool"
	"github.com/toolsd/toolsd/ipc"
)

// textResult is a CallToolResult with one text.
func textResult(text string, isError bool) json.RawMessage {
	return encode(struct {
		Content []any `json:"content"`
		IsError bool  `json:"isError,omitempty"`
	}{[]any{map[string]string{"type": "text", "text": text}}, isError})
}

// failure words an error of the daemon for a model. What the model can do comes
// before what its user can type; a hint for a terminal that only repeats the
// candidates is left out.
func failure(err error) json.RawMessage {
	e := ipc.AsError(err)
	text := sentence(e.Message)
	switch {
	case e.Code == ipc.CodeNotFound && len(e.Candidates) > 0:
		text += fmt.Sprintf(" Did you mean %s? Ask tool_search for it: %s.", strings.Join(e.Candidates, " or "), example(e.Candidates[0]))
	case e.Code == ipc.CodeNotFound:
		text += " Use tool_search to find tools by what they do."
	case e.Code == ipc.CodeAmbiguous && len(e.Candidates) > 0:
		text += fmt.Sprintf(" Give one of these to tool_call or tool_search as tool_id: %s.", strings.Join(e.Candidates, ", "))
	case e.Hint != "":
		text += " " + sentence(e.Hint)
	}
	// What waits for its user cannot be called by anybody.
	if e.Code != ipc.CodeNeedsTrust && strings.Contains(text, "::") && !strings.Contains(text, toolCall) && !strings.Contains(text, toolSearch) {
		text += " A tool named by its id is called through tool_call."
	}
	return textResult(text, true)
}

func example(id string) string { return string(encode(map[string]string{"tool_id": id})) }

// sentence ends a text with a full stop and begins it with a capital, unless it
// begins with something that is written as it is.
func sentence(s string) string {
	s = strings.TrimSpace(s)
	if s == "" {
		return s
	}
	if first, _, _ := strings.Cut(s, " "); !strings.ContainsAny(first, "_:./`\"'") && first[0] >= 'a' && first[0] <= 'z' {
		s = strings.ToUpper(s[:1]) + s[1:]
	}
	if !strings.ContainsAny(s[len(s)-1:], ".!?") {
		s += "."
	}
	return s
}

// refusal words why a tool was not run. The text ends with the definition, so
// that the next call can be right.
func refusal(r *ipc.Refusal, f facts, viaCall bool, understood []string) json.RawMessage {
	var b strings.Builder
	for _, u := range understood {
		b.WriteString(u + " ")
	}
	// A tool is named as it is called next: by its own name or by its id.
	byID := viaCall && !(f.lists(r.Tool) && !r.Tool.ReadOnly) && r.Why != ipc.CallByName
	name := r.Tool.Name
	if byID {
		name = r.Tool.ID.String()
	}
	switch r.Why {
	case ipc.CallByName:
		fmt.Fprintf(&b, "%s was not run: it is in your tool list, so call it by that name, with the same arguments.%s", name, deferred(f, name))
		return textResult(b.String(), true)
	case ipc.NotSeen:
		fmt.Fprintf(&b, "%s was not run, because its definition had not been shown here yet.", name)
	case ipc.Changed:
		fmt.Fprintf(&b, "%s was not run, because its definition has changed since it was shown here.", name)
	case ipc.BadArguments:
		fmt.Fprintf(&b, "%s was not run, because the arguments do not fit its input schema: %s.", name, strings.TrimSuffix(strings.Join(r.Problems, "; "), "."))
	default:
		fmt.Fprintf(&b, "%s was not run (%s).", name, r.Why)
	}
	switch {
	case !viaCall && f.lists(r.Tool):
		b.WriteString(" Call it again with arguments that fit this definition:")
	case !viaCall:
		fmt.Fprintf(&b, " Call it again, or tool_call with tool_id %s, with arguments that fit this definition:", r.Tool.ID)
	case !byID:
		fmt.Fprintf(&b, " It is in your tool list now: call it by that name.%s Its definition:", deferred(f, name))
	default:
		fmt.Fprintf(&b, " Call tool_call again with tool_id %s and arguments that fit this definition:", name)
	}
	b.WriteString("\n")
	b.Write(r.Tool.Definition)
	return textResult(b.String(), true)
}

// deferred says how a client with a tool search of its own loads tools that it
// announces without their definition.
func deferred(f facts, names ...string) string {
	if f.profile.toolPrefix == "" || len(names) == 0 {
		return ""
	}
	return fmt.Sprintf(" Where your client announces it as deferred, load it first: ToolSearch with query \"select:%s%s\".",
		f.profile.toolPrefix, strings.Join(names, ","+f.profile.toolPrefix))
}

// line makes a text one line.
func line(s string) string { return strings.Join(strings.Fields(tool.CleanLine(s)), " ") }

const (
	// maxInstructions is where Claude Code cuts.
	maxInstructions = 2048
	// The space for what a server is for, the largest that lets all servers in.
	// Under the last one a line says too little to be worth its place.
	mostAbout, leastAbout = 200, 40
)

// instructions say how to search and what is there. They depend on nothing but
// the servers and the mode.
func (s *shim) instructions() string {
	s.view.mu.Lock()
	servers, mode := s.view.servers, s.view.mode
	s.view.mu.Unlock()
	return instructions(servers, mode)
}

func instructions(servers []ipc.ServerBrief, mode ipc.Mode) string {
	head := "toolsd serves the tools of all MCP servers of this machine. Only some are in your tool list: whenever you need another, find and activate it with tool_search (what it should do, in a few words), then call it as the answer's note says. To browse, use list_tool_categories and get_category_tools."
	if mode == ipc.Direct {
		head = "toolsd serves the tools of all MCP servers of this machine. They are in your tool list: call them by name. To find the right one by what it does use tool_search; to browse, list_tool_categories and get_category_tools."
	}
	if len(servers) == 0 {
		return head
	}
	head += "\nServers (their tools are reached through tool_search):"
	if mode == ipc.Direct {
		head = strings.Replace(head, "(their tools are reached through tool_search)", "(tool_search finds their tools)", 1)
	}
	lines := func(about int) (text string, left int) {
		var b strings.Builder
		b.WriteString(head)
		for i, s := range servers {
			l := fmt.Sprintf("\n- %s (%d tools)", tool.Cut(line(s.Name), 100), s.Tools)
			if s.Tools == 1 {
				l = strings.Replace(l, "tools)", "tool)", 1)
			}
			// Instructions are often Markdown that opens with a heading.
			if a := strings.TrimLeft(line(s.About), "#*- "); a != "" {
				l += ": " + tool.Cut(a, about)
			}
			more := fmt.Sprintf("\nand %d more", len(servers)-i)
			if i == len(servers)-1 {
				more = ""
			}
			if b.Len()+len(l)+len(more) > maxInstructions {
				fmt.Fprintf(&b, "\nand %d more", len(servers)-i)
				return b.String(), len(servers) - i
			}
			b.WriteString(l)
		}
		return b.String(), 0
	}
	for about := mostAbout; about > leastAbout; about -= 20 {
		if text, left := lines(about); left == 0 {
			return text
		}
	}
	text, _ := lines(leastAbout)
	return text
}
