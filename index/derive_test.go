package index

import (
	"encoding/json"
	"fmt"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/toolsd/toolsd/index/tool"
)

// deriveSlowly is derive's rule, word for word.
func (c *corpus) deriveSlowly(names [][2]string) (groups [][]int) {
	left := make([]bool, len(names))
	for i := range left {
		left[i] = true
	}
	for {
		size := map[string]int{}
		for i, n := range names {
			if left[i] {
				size[n[0]]++
				if n[1] != n[0] {
					size[n[1]]++
				}
			}
		}
		best, bestScore := "", 0
		for w, n := range size {
			score := 2 * n
			if genericVerb(w) {
				score = n
			}
			if n >= minDerived && (score > bestScore || score == bestScore && w < best) {
				best, bestScore = w, score
			}
		}
		if best == "" {
			return groups
		}
		var members []int
		for i, n := range names {
			if left[i] && (n[0] == best || n[1] == best) {
				members, left[i] = append(members, i), false
			}
		}
		groups = append(groups, members)
	}
}

func TestDerivedCategoriesFollowTheirRule(t *testing.T) {
	words := []string{"get", "list", "bar", "foo", "kit", "lamp", "moon", "set"} // each is its own stem
	rapid.Check(t, func(t *rapid.T) {
		var names [][2]string
		var tools []*tool.Tool
		for i := range rapid.IntRange(smallServer+1, 60).Draw(t, "tools") {
			n := [2]string{rapid.SampledFrom(words).Draw(t, "first"), rapid.SampledFrom(words).Draw(t, "last")}
			// The number in the middle makes names of their own, in this order.
			p, err := tool.Parse("s", json.RawMessage(fmt.Sprintf(`{"name":"%s_%s_%s"}`, n[0], string(rune('a'+i/26))+string(rune('a'+i%26))+"zq", n[1])))
			if err != nil {
				t.Fatal(err)
			}
			names, tools = append(names, n), append(tools, p)
		}
		x := Open(Options{})
		if err := x.Replace(Listing{Key: "k", Server: "s", Tools: tools}); err != nil {
			t.Fatal(err)
		}
		c := x.Snapshot().all
		common := map[string]int{}
		for _, n := range names {
			for i, w := range n {
				if i == 0 || w != n[0] {
					common[w]++
				}
			}
		}
		for _, n := range common {
			if n*5 > len(names)*3 {
				t.Skip("a word that most names hold parts nothing")
			}
		}
		var want, got []string
		for _, members := range c.deriveSlowly(names) {
			var set []string
			for _, i := range members {
				set = append(set, tools[i].Name)
			}
			slices.Sort(set)
			want = append(want, fmt.Sprint(set))
		}
		for _, g := range x.Snapshot().Categories(nil) {
			var set []string
			for _, e := range g.Tools {
				set = append(set, e.Tool.Name)
			}
			slices.Sort(set)
			if g.Name != "s" { // the rest
				got = append(got, fmt.Sprint(set))
			}
		}
		slices.Sort(want)
		slices.Sort(got)
		if !slices.Equal(got, want) {
			t.Fatalf("got %v, want %v", got, want)
		}
	})
}
