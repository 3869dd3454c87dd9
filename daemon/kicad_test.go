package daemon

import (
	"encoding/json"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/toolsd/toolsd/ipc"
)

// TestKiCAD is the scenario toolsd was made for: a server of 229 tools whose own
// search cannot find 60 of them, with its 15 categories and 32 essential tools
// in the config.
func TestKiCAD(t *testing.T) {
	raw, err := os.ReadFile(shared(t, "kicad", "config-part.json"))
	if err != nil {
		t.Fatal(err)
	}
	var part struct {
		Pinned     []string
		Categories map[string]struct {
			Description string   `json:"description"`
			Tools       []string `json:"tools"`
		}
	}
	if err := json.Unmarshal(raw, &part); err != nil {
		t.Fatal(err)
	}
	m := newMachine(t)
	m.config(object{"kicad": fault("tools=" + shared(t, "catalog", "kicad.json"))},
		object{"pinned": part.Pinned, "categories": part.Categories, "toolSearch": object{"minPct": 0, "minTokens": 0}})
	r := m.start()
	r.untilState("kicad", ipc.StateReady)
	ctx := t.Context()

	c, err := r.client.Categories(ctx, ipc.CategoriesRequest{})
	if err != nil || c.Total != 229 {
		t.Fatalf("the categories count %d distinct tools, want 229; %v", c.Total, err)
	}
	configured := 0
	for _, category := range c.Categories {
		want, ok := part.Categories[category.Name]
		if !ok {
			if !strings.HasPrefix(category.Name, "kicad") {
				t.Errorf("a derived category is named %s", category.Name)
			}
			continue
		}
		configured++
		if category.Tools != len(want.Tools) || category.Description != want.Description {
			t.Errorf("%s", ipc.Encode(category))
		}
	}
	if configured != 15 {
		t.Errorf("%d of 15 configured categories are there", configured)
	}

	found, err := r.client.Search(ctx, ipc.SearchRequest{Query: "gerber", Max: 50})
	if err != nil || found.Count == 0 || found.Matches[0].ToolID != "kicad::export_gerber" {
		t.Fatalf("%s %v", ipc.Encode(found), err)
	}
	ids := []string{}
	for _, match := range found.Matches {
		ids = append(ids, match.ToolID)
	}
	for _, id := range part.Categories["export"].Tools {
		if !slices.Contains(ids, id) {
			t.Errorf("gerber does not bring %s of the category export", id)
		}
	}

	all, err := r.client.Tools(ctx, ipc.ToolsRequest{})
	if err != nil || len(all.Tools) != 229 {
		t.Fatalf("%d tools, %v", len(all.Tools), err)
	}
	for _, tool := range all.Tools {
		got := r.ids(tool.Tool)
		if len(got) == 0 || got[0] != tool.ToolID {
			t.Errorf("%s is not the first match of its own name: %v", tool.ToolID, got)
		}
		if pinned := slices.Contains(part.Pinned, tool.ToolID); pinned != (tool.Reached == ipc.Pinned) {
			t.Errorf("%s is %s", tool.ToolID, tool.Reached)
		}
	}

	s, err := r.client.Attach(ctx, ipc.AttachRequest{Client: "test"}, ipc.Events{})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	listed := []string{}
	for _, l := range s.Hello().List {
		listed = append(listed, l.ID.String())
	}
	if !slices.Equal(listed, part.Pinned) {
		t.Errorf("a new session lists %v, want the pinned in their order", listed)
	}
}
