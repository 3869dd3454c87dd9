package clientconfig

import (
	"math"
	"slices"
	"strconv"
	"strings"
	"time"
)

// maxTimeout is a day: what is above is a mistake of the unit.
const maxTimeout = 24 * time.Hour

// timeout reads a timeout. A bad one does not make the entry unusable: the
// default serves.
func (e *entryReader) timeout(key string, v *node, into *time.Duration) {
	unit := e.client.Unit
	switch {
	case strings.HasSuffix(key, "_sec"):
		unit = time.Second
	case strings.HasSuffix(key, "_ms"):
		unit = time.Millisecond
	}
	word := "milliseconds"
	if unit == time.Second {
		word = "seconds"
	}
	x, err := strconv.ParseFloat(v.text, 64)
	if v.kind != kNumber && v.kind != kString || err != nil || !(x >= 0) {
		e.note(v, "", "%s must be a number of %s; the default is used", quoted(key), word)
		return
	}
	ns := x * float64(unit)
	switch {
	case x == 0 || math.IsInf(x, 0):
		return // no limit, in the clients' words; the default is the nearest to it
	case ns > float64(maxTimeout):
		e.note(v, "", "%s is longer than a day; it counts in %s; a day is used", quoted(key), word)
		ns = float64(maxTimeout)
	case unit == time.Millisecond && x < 1000:
		e.note(v, "", "%s is less than a second; it counts in milliseconds", quoted(key))
	}
	*into = time.Duration(ns)
}

// own reads the block that is toolsd's. It decides how an entry runs, not
// whether: a bad value is a problem and the default serves.
func (e *entryReader) own(v *node) {
	if v.kind != kMap {
		e.note(v, "", `"toolsd" is %s, not an object`, v.kind)
		return
	}
	e.duplicates(v, e.s.Name)
	choice := func(key string, n *node, into *string, allowed ...string) {
		if n.kind == kString && slices.Contains(allowed, n.text) {
			*into = n.text
			return
		}
		e.note(n, "", "%s in the toolsd block must be one of %s; the default is used", quoted(key), strings.Join(allowed, ", "))
	}
	for m := range v.distinct {
		n := m.val
		if n.kind == kNull {
			continue
		}
		switch m.key {
		case "share":
			choice(m.key, n, &e.s.Share, "shared", "project", "session")
		case "start":
			choice(m.key, n, &e.s.Start, "eager", "lazy")
		case "protocol":
			choice(m.key, n, &e.s.Protocol, "auto", "legacy", "modern")
		case "idle":
			d, err := time.ParseDuration(n.text)
			if n.kind != kString || err != nil || d <= 0 {
				e.note(n, "", `"idle" in the toolsd block must be a duration such as 30s, 10m or 2h; the default is used`)
				continue
			}
			e.s.Idle = d
		case "origin":
			if _, ok := ClientOf(n.text); n.kind != kString || !ok {
				e.note(n, "", `"origin" in the toolsd block must be the slug of a client, such as cursor; variables are read as in this file`)
				continue
			}
			e.s.Origin = n.text
		default:
			e.problem(m.at, e.s.Name, quoted(m.key)+" is not a key of the toolsd block", "the keys are share, start, idle, protocol and origin")
		}
	}
}
