package daemon

import (
	"encoding/json"

	"github.com/toolsd/toolsd/daemon/trust"
	"github.com/toolsd/toolsd/index"
	"github.com/toolsd/toolsd/index/tool"
)

// lastSeen returns, of tools that have changed, the definitions that the user's
// agents saw last. Trust remembers hashes only, so they come from the listing
// before: as what was listed there, or as what it kept itself. They may be lost
// with the index, and then there is nothing to compare with.
func (d *Daemon) lastSeen(key string, before index.Listing, now []*tool.Tool) map[string]json.RawMessage {
	subject := trust.Subject(key)
	listed := make(map[string]*tool.Tool, len(before.Tools))
	for _, t := range before.Tools {
		listed[t.Name] = t
	}
	out := map[string]json.RawMessage{}
	for _, t := range now {
		if d.trust.Changed(subject, t) != trust.Altered {
			continue
		}
		old := listed[t.Name]
		if old != nil && d.trust.Changed(subject, old) == trust.Unchanged {
			out[t.Name] = old.Raw
		} else if was, kept := before.Was[t.Name]; kept {
			out[t.Name] = was
		}
	}
	return out
}

// changes says how a tool differs from what the user's agents saw last, a line
// each; none when it does not, is new, or what they saw is lost.
func (d *Daemon) changes(key string, t *tool.Tool) []string {
	if d.trust.Changed(trust.Subject(key), t) != trust.Altered {
		return nil
	}
	listing, _ := d.index.Snapshot().Listing(key)
	was, kept := listing.Was[t.Name]
	if !kept {
		return nil
	}
	return trust.Differences(was, t.Raw)
}
