package index

// explain says which word of the query matched where in a tool and for how much,
// computing again what the postings hold only as a sum. The rows after the words
// say how the score came about; all rows together make the score:
//
//	name      the query names this tool, which puts it first
//	coverage  how much of the query and of the tool's name matched
//	clause    it is the best tool of a sentence, or near to it
//	server    other tools of its server fit too
func (c *corpus) explain(p *parsed, h hit) []Evidence {
	var out []Evidence
	sum := 0.0
	for i := range p.concepts {
		k := &p.concepts[i]
		var best Evidence
		for j := range k.variants {
			if e := c.evidence(k, &k.variants[j], h.doc); e.Score > best.Score {
				best = e
			}
		}
		if best.Score > 0 {
			out = append(out, best)
			sum += best.Score
		}
	}
	words := sum
	add := func(how, field string, score, weight float64) {
		if score > 1e-6 {
			out = append(out, Evidence{Field: field, How: how, Weight: weight, Score: score})
			sum += score
		}
	}
	if words > 0 {
		add("coverage", "name", float64(h.words)-words, float64(h.words)/words)
	}
	add("clause", "", float64(h.clause), float64(c.rank.clause))
	add("server", "server", float64(h.server), float64(c.rank.server))
	if h.exact > 0 {
		name := c.docs[h.doc].tool.Name
		out = append([]Evidence{{Word: name, Term: name, Field: "name", How: "name", Weight: 1, Score: float64(h.score) - sum}}, out...)
	}
	return out
}

// evidence is what one variant is worth in one document.
func (c *corpus) evidence(k *concept, v *variant, doc uint32) Evidence {
	e := Evidence{Word: k.word, Term: v.as, How: howNames[v.how], Weight: float64(v.weight)}
	strongest := float32(0)
	for _, s := range v.stems {
		p, ok := c.posting(s, doc)
		if !ok {
			if len(v.stems) > 1 {
				return Evidence{} // a phrase is there as a whole or not at all
			}
			break
		}
		e.Score += float64(p.impact * v.weight * c.rarity(k, s) / float32(len(v.stems)))
		for _, en := range c.docs[doc].entries {
			if c.dict.wordStem[en.word] == s && c.rank.weight[en.field] > strongest {
				strongest, e.Field = c.rank.weight[en.field], fieldNames[en.field]
			}
		}
	}
	if len(v.stems) == 1 {
		for _, g := range c.inGroups(v.stems[0]) {
			score := float64(g.impact * v.weight * c.rarity(k, v.stems[0]))
			if score > e.Score && c.groups[g.group].has(doc) {
				e.Score, e.Field = score, fieldNames[fieldGroup]
			}
		}
	}
	return e
}
