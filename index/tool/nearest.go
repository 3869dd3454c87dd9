package tool

import (
	"cmp"
	"slices"
	"strings"
)

// Nearest returns the names that a slip of the keyboard could have turned into
// word, best first, at most most. Case does not count, and a name of which word
// is a part comes after those that differ by a letter or two.
func Nearest(word string, names []string, most int) []string {
	type candidate struct {
		name string
		cost int
	}
	folded := []rune(strings.ToLower(word))
	if len(folded) == 0 || len(folded) > 200 { // no name is that long
		return nil
	}
	limit := max(1, min(3, len(folded)/3)) // one slip in three letters, three at most
	var found []candidate
	for _, n := range names {
		lower := strings.ToLower(n)
		d := EditDistance(folded, []rune(lower), limit)
		switch {
		case d <= limit:
			found = append(found, candidate{n, d})
		case len(folded) >= 3 && strings.Contains(lower, string(folded)):
			found = append(found, candidate{n, limit + 1})
		}
	}
	slices.SortFunc(found, func(a, b candidate) int {
		return cmp.Or(cmp.Compare(a.cost, b.cost), cmp.Compare(a.name, b.name))
	})
	var out []string
	for _, c := range found {
		if len(out) < most && !slices.Contains(out, c.name) {
			out = append(out, c.name)
		}
	}
	return out
}

// EditDistance counts the insertions, deletions, replacements and swaps of
// neighbours between a and b (optimal string alignment). Above limit it may
// return any larger number.
func EditDistance(a, b []rune, limit int) int {
	if len(a)-len(b) > limit || len(b)-len(a) > limit {
		return limit + 1
	}
	older, old, row := make([]int, len(b)+1), make([]int, len(b)+1), make([]int, len(b)+1)
	for j := range old {
		old[j] = j
	}
	for i := 1; i <= len(a); i++ {
		row[0] = i
		least := row[0]
		for j := 1; j <= len(b); j++ {
			change := 1
			if a[i-1] == b[j-1] {
				change = 0
			}
			row[j] = min(row[j-1]+1, old[j]+1, old[j-1]+change)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				row[j] = min(row[j], older[j-2]+1)
			}
			least = min(least, row[j])
		}
		if least > limit {
			return least
		}
		older, old, row = old, row, older
	}
	return old[len(b)]
}
