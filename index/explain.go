package index

// explain says which word of the query matched where in a tool and for how much.
// It computes again what the postings hold only as a sum.
func (c *corpus) explain(p *parsed, h hit) []Evidence {
	d := c.docs[h.doc]
	var out []Evidence
	if h.exact > 0 {
		out = append(out, Evidence{Word: d.tool.Name, Term: d.tool.Name, Field: "name", How: "name", Weight: 1, Score: float64(h.score)})
	}
	for i := range p.concepts {
		k := &p.concepts[i]
		var best Evidence
		for _, v := range k.variants {
			e := c.evidence(k, v, h.doc)
			if e.Score > best.Score {
				best = e
			}
		}
		if best.Score > 0 {
			out = append(out, best)
		}
	}
	return out
}

// evidence is what one variant is worth in one document.
func (c *corpus) evidence(k *concept, v variant, doc uint32) Evidence {
	e := Evidence{Word: k.word, Term: v.as, How: howNames[v.how], Weight: float64(v.weight)}
	strongest := float32(0)
	for _, s := range v.stems {
		found := false
		for _, p := range c.postings(s) {
			if p.doc == doc {
				e.Score += float64(p.impact * v.weight * c.rarity(k, s) / float32(len(v.stems)))
				found = true
			}
		}
		if !found && len(v.stems) > 1 {
			return Evidence{}
		}
		if !found {
			for _, g := range c.inGroups(s) {
				if c.groups[g.group].has(doc) {
					e.Score = max(e.Score, float64(g.impact*v.weight*c.rarity(k, s)))
					e.Field = fieldNames[fieldGroup]
				}
			}
			continue
		}
		for _, en := range c.docs[doc].entries {
			if c.dict.wordStem[en.word] == s && c.rank.weight[en.field] > strongest {
				strongest, e.Field = c.rank.weight[en.field], fieldNames[en.field]
			}
		}
	}
	return e
}
