package ipc

import (
	"fmt"
	"net/http"
	"runtime/debug"
	"strconv"
	"strings"
	"sync"
)

// Protocol is a range of versions of this package's wire format. It grows when a
// path, a field or a frame that others rely on changes its meaning; new ones
// that may be ignored do not count.
type Protocol struct {
	Min int `json:"min"`
	Max int `json:"max"`
}

// Supported is what this build speaks.
//
//	1: the first
var Supported = Protocol{Min: 1, Max: 1}

// Overlaps reports whether both ends have a version in common.
func (p Protocol) Overlaps(q Protocol) bool { return p.Min <= q.Max && q.Min <= p.Max }

func (p Protocol) String() string { return fmt.Sprintf("%d-%d", p.Min, p.Max) }

const (
	versionHeader  = "Toolsd-Version"
	protocolHeader = "Toolsd-Protocol"
)

func stamp(h http.Header) {
	h.Set(versionHeader, Version())
	h.Set(protocolHeader, Supported.String())
}

func parseProtocol(s string) (Protocol, bool) {
	lo, hi, ok := strings.Cut(s, "-")
	low, err1 := strconv.Atoi(lo)
	high, err2 := strconv.Atoi(hi)
	return Protocol{low, high}, ok && err1 == nil && err2 == nil
}

// Version is this build's version: the module's when it was installed by
// version, else the commit it was built from.
var Version = sync.OnceValue(func() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "unknown"
	}
	if linked != "" {
		return linked
	}
	if v := info.Main.Version; v != "" && v != "(devel)" {
		return v
	}
	revision, dirty := "", ""
	for _, s := range info.Settings {
		switch {
		case s.Key == "vcs.revision" && len(s.Value) >= 12:
			revision = s.Value[:12]
		case s.Key == "vcs.modified" && s.Value == "true":
			dirty = "+dirty"
		}
	}
	if revision == "" {
		return "devel"
	}
	return "devel-" + revision + dirty
})

// linked is set with -ldflags -X by the release script.
var linked string
