package trust

import (
	"regexp"
	"sync"
)

// pattern is a regular expression that is compiled when it is first used. There
// are many here, and every toolsd command links this package: compiling them at
// its start would take a quarter of a warm search.
func pattern(text string) func() *regexp.Regexp {
	return sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(text) })
}
