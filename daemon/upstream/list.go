package upstream

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/toolsd/toolsd/index/tool"
)

const (
	// maxPages and maxTools end a listing that never ends. The largest real
	// server has some hundreds of tools.
	maxPages = 1000
	maxTools = 10000
	// maxProblems bounds what is reported of one listing.
	maxProblems = 50
)

// list asks for all pages of the tools. Odd tools are left out and reported; an
// error means that there is no listing at all.
func (l *link) list(ctx context.Context, server string, clean cleaner) (out Listing, err error) {
	out.Instructions = l.instructions
	if !l.hasTools {
		return out, nil
	}
	dropped := 0
	problem := func(format string, args ...any) {
		if dropped++; dropped <= maxProblems {
			out.Problems = append(out.Problems, clean.short(fmt.Sprintf(format, args...), 300))
		}
	}
	defer func() {
		if dropped > maxProblems {
			out.Problems = append(out.Problems, fmt.Sprintf("and %d more", dropped-maxProblems))
		}
	}()
	byName := map[string]bool{}
	asked := map[string]bool{}
	cursor := ""
	for page := 1; ; page++ {
		params := []byte(nil)
		if cursor != "" {
			params, _ = json.Marshal(map[string]string{"cursor": cursor})
		}
		raw, err := l.request(ctx, "tools/list", params, nil, nil, nil)
		var refused *RPCError
		switch {
		case errors.As(err, &refused) && page > 1:
			problem("page %d of the list: %s; the tools before it are kept", page, refused.Message)
			return out, nil
		case errors.As(err, &refused) && refused.Code == -32601:
			problem("it says that it has tools but does not know tools/list")
			return out, nil
		case err != nil:
			return Listing{}, fmt.Errorf("listing its tools: %w", err)
		}
		var answer map[string]json.RawMessage
		var tools []json.RawMessage
		if json.Unmarshal(raw, &answer) != nil || json.Unmarshal(answer["tools"], &tools) != nil && len(answer["tools"]) > 0 {
			if page == 1 {
				return Listing{}, errors.New("listing its tools: the answer holds no array of tools")
			}
			problem("page %d of the list holds no array of tools", page)
			return out, nil
		}
		if len(answer["tools"]) == 0 && page == 1 {
			problem("its list holds no tools key")
		}
		// The list is as fresh as the page that ages first.
		if ttl := freshness(answer["ttlMs"]); page == 1 || ttl < l.ttl {
			l.ttl = ttl
		}
		for _, raw := range tools {
			t, err := tool.Parse(server, raw)
			switch {
			case err != nil:
				problem("%v", err)
			case byName[t.Name]:
				problem("tool %q is listed twice; the first one is kept", t.Name)
			case len(out.Tools) == maxTools:
				problem("the list ends at %d tools, the limit", maxTools)
				return out, nil
			default:
				byName[t.Name] = true
				out.Tools = append(out.Tools, t)
			}
		}
		next := ""
		if c := answer["nextCursor"]; len(c) > 0 && json.Unmarshal(c, &next) != nil {
			problem("the list has a next page whose cursor is not a string; it ends here")
			return out, nil
		}
		switch {
		case next == "":
			return out, nil
		case asked[next]:
			problem("the list repeats the cursor of a page; it ends here")
			return out, nil
		case page == maxPages:
			problem("the list ends at page %d, the limit", maxPages)
			return out, nil
		}
		asked[next] = true
		cursor = next
	}
}
