package shim

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/toolsd/toolsd/index/tool"
	"github.com/toolsd/toolsd/ipc"
)

const (
	// briefDescription is how much of a description stands beside a definition
	// that the client has anyway: enough to choose between matches.
	briefDescription = 300
	// fullDescription is how much stands where the answer is all that the model
	// gets. Claude Code cuts descriptions there.
	fullDescription = 2048
	// lineDescription is how much stands in a list to browse.
	lineDescription = 200
	// manyActive is how many active tools go without a word about their weight.
	manyActive = 40
)

// found is the answer of tool_search.
type found struct {
	Query   string  `json:"query"`
	Count   int     `json:"count"`
	Matches []match `json:"matches"`
	Note    string  `json:"note"`
}

type match struct {
	ToolID      string          `json:"tool_id"`
	Name        string          `json:"name"`
	Category    string          `json:"category,omitempty"`
	Description string          `json:"description"`
	State       ipc.ToolState   `json:"state,omitempty"`
	InputSchema json.RawMessage `json:"inputSchema,omitempty"`
}

// search answers tool_search: it finds, and the daemon activates.
func (s *shim) search(ctx context.Context, input map[string]json.RawMessage, wanted claim) json.RawMessage {
	request, problem := searchRequest(input)
	if problem != "" {
		return textResult(problem, true)
	}
	start := time.Now()
	result, err := s.find(ctx, request)
	if plain := plainName(request.ToolID); notFound(err) && plain != request.ToolID {
		request.ToolID = plain
		result, err = s.find(ctx, request)
	}
	if err != nil {
		return failure(err)
	}
	var tools []ipc.Listed
	for _, m := range result.Matches {
		if m.Listed != nil {
			tools = append(tools, *m.Listed)
		}
	}
	s.view.awaitRelist(ctx, start, tools, s.ended)
	f := s.view.facts()
	out := found{Query: result.Query, Count: len(result.Matches), Matches: []match{}}
	seen := map[tool.ID]tool.Hash{}
	for _, m := range result.Matches {
		one := match{ToolID: m.ToolID, Name: m.Name, Category: m.Category, Description: tool.Cut(line(m.Description), briefDescription)}
		if m.State != ipc.ToolReady {
			one.State = m.State
		}
		if l := m.Listed; l != nil && !(f.relists && f.lists(*l)) {
			one.Description = tool.Cut(m.Description, fullDescription)
			one.InputSchema = inputSchema(l.Definition)
			seen[l.ID] = l.Hash
		}
		out.Matches = append(out.Matches, one)
	}
	out.Note = searchNote(result, f)
	if wanted() {
		s.saw(ctx, seen)
	}
	return textResult(string(encode(out)), false)
}

func (s *shim) find(ctx context.Context, r ipc.SearchRequest) (*ipc.SearchResult, error) {
	return question(ctx, s, func(ctx context.Context, _ ipc.Backend, session ipc.Session) (*ipc.SearchResult, error) {
		return session.Search(ctx, r)
	})
}

// searchRequest reads the input of tool_search. What models call by another
// name is understood; keys that mean nothing here are ignored, since a search
// changes nothing.
func searchRequest(input map[string]json.RawMessage) (r ipc.SearchRequest, problem string) {
	texts := map[string]*string{"query": &r.Query, "tool_id": &r.ToolID, "server": &r.Server, "category": &r.Category}
	for name, into := range texts {
		if raw, ok := input[name]; ok && string(raw) != "null" && json.Unmarshal(raw, into) != nil {
			return r, fmt.Sprintf("tool_search takes %s as a string, not %s. Example: {\"query\":\"export gerber files\"}", name, tool.Cut(string(raw), 100))
		}
	}
	r.Query = strings.TrimSpace(r.Query)
	if strings.TrimSpace(r.ToolID) == "" {
		r.ToolID = "" // else kept: a name may end with a space
	}
	switch {
	case r.Query != "" && r.ToolID != "":
		return r, "tool_search takes either query or tool_id, not both: query finds tools by what they do, tool_id loads one known tool."
	case r.Query == "" && r.ToolID == "":
		return r, "tool_search needs either a query, which says what the tool should do, or a tool_id. Example: {\"query\":\"export gerber files\"}"
	}
	raw := first(input, "max_results", "limit", "maxResults")
	if raw == nil || string(raw) == "null" {
		return r, ""
	}
	n, err := strconv.ParseFloat(strings.Trim(string(raw), `"`), 64)
	if err != nil || n < 1 || n != math.Trunc(n) {
		return r, fmt.Sprintf("max_results must be a whole number above 0, not %s.", tool.Cut(string(raw), 100))
	}
	r.Max = int(min(n, math.MaxInt32)) // more than there are tools is all of them
	return r, ""
}

// first returns the first of the members that is there.
func first(members map[string]json.RawMessage, names ...string) json.RawMessage {
	for _, n := range names {
		if raw, ok := members[n]; ok {
			return raw
		}
	}
	return nil
}

// inputSchema is that part of a definition, byte for byte.
func inputSchema(definition json.RawMessage) json.RawMessage {
	members, err := object(definition)
	if err != nil || members["inputSchema"] == nil {
		return json.RawMessage(`{"type":"object"}`)
	}
	return members["inputSchema"]
}

// searchNote says how the matches are called in this session, and what else
// must be known. The daemon's own note tells how the query was read.
func searchNote(r *ipc.SearchResult, f facts) string {
	var notes, byName, byID []string
	for _, m := range r.Matches {
		switch l := m.Listed; {
		case l != nil && f.lists(*l):
			byName = append(byName, l.Name)
		case l != nil:
			byID = append(byID, m.ToolID)
		}
	}
	if r.Note != "" {
		notes = append(notes, r.Note)
	}
	switch {
	case len(r.Matches) == 0:
		notes = append(notes, "Try other words for the action or its object, or browse with list_tool_categories and get_category_tools.")
	case len(byID) == 0 && len(byName) > 0:
		notes = append(notes, "The matches are in your tool list: call them by name, "+strings.Join(byName, ", ")+"."+deferred(f, byName...))
	case len(byName) == 0 && len(byID) > 0:
		notes = append(notes, "Call a match through tool_call: its tool_id, and arguments that fit its inputSchema.")
	case len(byID) > 0:
		notes = append(notes, "In your tool list, to be called by name: "+strings.Join(byName, ", ")+"."+deferred(f, byName...),
			"Through tool_call, with arguments that fit the inputSchema: "+strings.Join(byID, ", ")+".")
	}
	if len(r.Waiting) > 0 && len(r.Matches) > 0 {
		notes = append(notes, "Not searched, since they are starting for the first time: "+strings.Join(r.Waiting, ", ")+".")
	}
	if len(r.Waiting) > 0 {
		notes = append(notes, "Search again in a few seconds to find their tools.")
	}
	if f.mode == ipc.Search && f.active > manyActive {
		notes = append(notes, fmt.Sprintf("%d tools are active now and weigh about %d tokens.", f.active, f.tokens))
	}
	return strings.Join(notes, " ")
}

// categories answers list_tool_categories.
func (s *shim) categories(ctx context.Context) json.RawMessage {
	list, err := s.listCategories(ctx, "")
	if err != nil {
		return failure(err)
	}
	if list.Categories == nil {
		list.Categories = []ipc.CategoryInfo{}
	}
	for i := range list.Categories {
		c := &list.Categories[i]
		c.Description = tool.Cut(line(c.Description), lineDescription)
	}
	return textResult(string(encode(struct {
		*ipc.CategoryList
		Note string `json:"note"`
	}{list, "get_category_tools lists the tools of a category; any tool named here is reached through tool_search."})), false)
}

// categoryTools answers get_category_tools.
func (s *shim) categoryTools(ctx context.Context, input map[string]json.RawMessage) json.RawMessage {
	var name string
	raw := first(input, "category", "name", "category_name")
	if err := json.Unmarshal(raw, &name); err != nil || strings.TrimSpace(name) == "" {
		return textResult("get_category_tools needs the name of a category as a string; list_tool_categories shows them. Example: {\"category\":\"export\"}", true)
	}
	list, err := s.listCategories(ctx, strings.TrimSpace(name))
	if err != nil {
		e := ipc.AsError(err)
		switch {
		case (e.Code == ipc.CodeNotFound || e.Code == ipc.CodeAmbiguous) && len(e.Candidates) > 0:
			return textResult(sentence(e.Message)+" Did you mean "+strings.Join(e.Candidates, " or ")+"? list_tool_categories shows all categories.", true)
		case e.Code == ipc.CodeNotFound:
			return textResult(sentence(e.Message)+" list_tool_categories shows all categories.", true)
		}
		return failure(err)
	}
	var b strings.Builder
	for _, c := range list.Categories {
		for _, t := range c.Members {
			fmt.Fprintf(&b, "%s: %s\n", t.ToolID, tool.Cut(line(t.Description), lineDescription))
		}
	}
	if b.Len() == 0 {
		b.WriteString("This category has no tools.\n")
	}
	b.WriteString("To use one, give its id to tool_search as tool_id, which activates it and shows how to call it; or call it through tool_call, which shows its schema first.")
	return textResult(b.String(), false)
}

func (s *shim) listCategories(ctx context.Context, category string) (*ipc.CategoryList, error) {
	return question(ctx, s, func(ctx context.Context, b ipc.Backend, _ ipc.Session) (*ipc.CategoryList, error) {
		return b.Categories(ctx, ipc.CategoriesRequest{Name: category, CWD: s.o.CWD})
	})
}

// question asks what may be asked twice: when the daemon is lost under it, the
// next one is asked.
func question[A any](ctx context.Context, s *shim, put func(context.Context, ipc.Backend, ipc.Session) (*A, error)) (*A, error) {
	for again := true; ; again = false {
		backend, session, err := s.link.current(ctx)
		if err != nil {
			return nil, unreachable(err)
		}
		a, err := put(ctx, backend, session)
		if err == nil {
			return a, nil
		}
		if e, coded := errors.AsType[*ipc.Error](err); coded && e.Code != ipc.CodeNoDaemon || !again || ctx.Err() != nil {
			return nil, err
		}
		s.link.lost(ctx, session)
	}
}

// unreachable words why there is no daemon.
func unreachable(err error) error {
	if e, ok := errors.AsType[*ipc.Error](err); ok {
		if e.Hint == "" {
			e = &ipc.Error{Code: e.Code, Message: e.Message, Hint: "start it with `toolsd start`; `toolsd doctor` says what is wrong"}
		}
		return e
	}
	return ipc.Errorf(ipc.CodeNoDaemon, "the toolsd daemon cannot be reached: %v", err).WithHint("start it with `toolsd start`; `toolsd doctor` says what is wrong")
}

// saw notes what an answer is about to show, here and in the daemon.
func (s *shim) saw(ctx context.Context, seen map[tool.ID]tool.Hash) {
	if len(seen) == 0 {
		return
	}
	s.view.saw(seen)
	s.link.saw(ctx, seen)
}
