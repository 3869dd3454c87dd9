package index

import (
	_ "embed"
	"strings"
	"sync"
)

//go:embed synonyms.txt
var synonymTable string

// synonyms says by which other words a word may be read.
type synonyms struct {
	// byFirst holds the readings by the first stem of what is read.
	byFirst map[string][]reading
}

// reading lets the words of from be read as any of to.
type reading struct {
	from []string   // stems
	to   [][]string // each a sequence of words
}

// builtin is read when the first query needs it: a program that only asks a
// daemon must not pay for it.
var builtin = sync.OnceValue(func() *synonyms { return parseTable(synonymTable) })

func parseTable(table string) *synonyms {
	s := &synonyms{byFirst: map[string][]reading{}}
	for line := range strings.Lines(table) {
		line, _, _ = strings.Cut(line, "#")
		if from, to, ok := strings.Cut(line, "=>"); ok {
			alternatives := phrases(to)
			for _, f := range phrases(from) {
				s.add(f, alternatives)
			}
			continue
		}
		s.addGroup(phrases(line))
	}
	return s
}

// withGroups returns the built-in synonyms and the user's.
func withGroups(groups [][]string) *synonyms {
	if len(groups) == 0 {
		return builtin()
	}
	s := &synonyms{byFirst: map[string][]reading{}}
	for k, v := range builtin().byFirst {
		s.byFirst[k] = v[:len(v):len(v)]
	}
	for _, g := range groups {
		var ps [][]string
		for _, text := range g {
			if p := phraseWords(text); len(p) > 0 {
				ps = append(ps, p)
			}
		}
		s.addGroup(ps)
	}
	return s
}

func (s *synonyms) addGroup(ps [][]string) {
	for i, from := range ps {
		var to [][]string
		to = append(append(to, ps[:i]...), ps[i+1:]...)
		s.add(from, to)
	}
}

func (s *synonyms) add(from []string, to [][]string) {
	stems := make([]string, len(from))
	for i, w := range from {
		stems[i] = stem(w)
	}
	if len(to) > 0 {
		s.byFirst[stems[0]] = append(s.byFirst[stems[0]], reading{stems, to})
	}
}

// phrases splits a line of the table: words, or several of them in quotes.
func phrases(line string) [][]string {
	var ps [][]string
	for i, part := range strings.Split(line, `"`) {
		if i%2 == 1 {
			if p := phraseWords(part); len(p) > 0 {
				ps = append(ps, p)
			}
			continue
		}
		for _, w := range strings.Fields(part) {
			if p := phraseWords(w); len(p) > 0 {
				ps = append(ps, p)
			}
		}
	}
	return ps
}

// phraseWords analyzes one alternative. What is written as one word is one word.
func phraseWords(text string) []string {
	var words []string
	for _, w := range strings.Fields(text) {
		var last string
		analyze(w, func(p piece) bool {
			last = p.word // the whole comes after its parts
			return true
		})
		if last != "" {
			words = append(words, last)
		}
	}
	return words
}
