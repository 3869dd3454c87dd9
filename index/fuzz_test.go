package index

import (
	"strings"
	"testing"
	"unicode/utf8"
)

func addTexts(f *testing.F) {
	for _, s := range []string{
		"", "gerber", "exportPDFFile2", "GitHub k8s 3d_model", "HTTPServer's URLs", "don't", "删除所有文件", "日本語 テスト 한국어", "Füße ÉCOLE ǅ ß", "a\x00b\xff\xc3(", "🎛️🏳️‍🌈",
		"read ~/a/b.md, https://x.example/y?z=1. Then “do” it; or not?", "a::b, c.d\ne/f", "u23dIOWt72E4", "'", "''s", "'s", strings.Repeat("aB1", 50), "e\u0301", "\u0301", "İstanbul",
	} {
		f.Add(s)
	}
}

// FuzzAnalyze: any bytes become words in order, small, bounded and within the text.
func FuzzAnalyze(f *testing.F) {
	addTexts(f)
	f.Fuzz(func(t *testing.T, text string) {
		pos := 0
		analyze(text, func(p piece) bool {
			if p.word == "" || len(p.word) > maxWord+utf8.UTFMax || !utf8.ValidString(p.word) {
				t.Fatalf("word %q of %q", p.word, text)
			}
			if p.span < 1 || p.pos < 0 || p.pos+p.span < pos || p.start < 0 || p.end <= p.start || p.end > len(text) {
				t.Fatalf("piece %+v of %q", p, text)
			}
			pos = p.pos
			stem(p.word)
			return true
		})
		first, rest := firstSentence(text)
		if len(first) > maxFirst+utf8.UTFMax || !strings.HasSuffix(text, first+rest) {
			t.Fatalf("%q was cut into %q and %q", text, first, rest)
		}
		if s := squash(text); squash(s) != s {
			t.Fatalf("squash is not stable for %q: %q, %q", text, s, squash(s))
		}
	})
}

// FuzzSearch: no query panics, and every answer keeps its promises.
func FuzzSearch(f *testing.F) {
	addTexts(f)
	x := Open(Options{})
	for _, l := range []Listing{board(f), disk(f)} {
		if err := x.Replace(l); err != nil {
			f.Fatal(err)
		}
	}
	s := x.Snapshot()
	f.Fuzz(func(t *testing.T, text string) {
		r := s.Search(Query{Text: text, Max: 7, Explain: true})
		seen := map[string]bool{}
		for i, m := range r.Matches {
			if seen[m.Tool.ID.String()] || m.Confidence < 0 || m.Confidence > 1 || m.Score < 0 || m.Score != m.Score {
				t.Fatalf("%q: match %d is %s, score %v, confidence %v", text, i, m.Tool.ID, m.Score, m.Confidence)
			}
			seen[m.Tool.ID.String()] = true
			for _, e := range m.Matched {
				if e.How == "" {
					t.Fatalf("%q: evidence %+v", text, e)
				}
			}
		}
		for _, e := range s.Find(text, nil) {
			if !seen[e.Tool.ID.String()] {
				t.Fatalf("%q names %s, which its search does not return", text, e.Tool.ID)
			}
		}
		s.Suggest(text, 3, nil)
		s.Search(Query{Text: text, Server: text, Category: text})
	})
}
