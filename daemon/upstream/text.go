package upstream

import (
	"encoding/json"
	"net/url"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/toolsd/toolsd/index/tool"
	"github.com/toolsd/toolsd/watcher/clientconfig"
)

// minSecret is the shortest value that is redacted: replacing "1" or "true"
// everywhere would make every text unreadable and protect nothing.
const minSecret = 6

// maxReason bounds a text of a server's that becomes part of a reason: a
// screenful at most.
const maxReason = 500

// cleaner makes the texts of one server fit to be shown: no hidden characters,
// none of its secrets. The zero cleaner only cleans.
type cleaner struct{ secrets *strings.Replacer }

func newCleaner(def clientconfig.Server) cleaner {
	found := map[string]bool{}
	add := func(s string) {
		// A secret shows up as it is, or as a URL or a JSON string holds it, or
		// line by line when it is a key of many lines.
		quoted, _ := json.Marshal(s)
		forms := []string{s, url.QueryEscape(s), url.PathEscape(s), strings.Trim(string(quoted), `"`), tool.CleanLine(s)}
		for _, form := range append(forms, strings.Split(s, "\n")...) {
			if form = strings.TrimSpace(form); len(form) >= minSecret {
				found[form] = true
			}
		}
	}
	for _, s := range def.Secrets {
		add(s)
	}
	for _, s := range def.Env {
		add(s)
	}
	for _, s := range def.Headers {
		add(s)
		if _, token, ok := strings.Cut(s, " "); ok { // Bearer …, Basic …
			add(token)
		}
	}
	for _, s := range secretArgs(def.Args) {
		add(s)
	}
	if u, err := url.Parse(def.URL); err == nil {
		if u.User != nil {
			password, _ := u.User.Password()
			add(password)
			add(u.User.String())
		}
		for key, values := range u.Query() {
			for _, v := range values {
				if looksSecret(key) {
					add(v)
				}
			}
		}
	}
	if len(found) == 0 {
		return cleaner{}
	}
	// The longest first: one secret may be part of another.
	all := make([]string, 0, len(found))
	for s := range found {
		all = append(all, s)
	}
	slices.SortFunc(all, func(a, b string) int { return len(b) - len(a) })
	pairs := make([]string, 0, 2*len(all))
	for _, s := range all {
		pairs = append(pairs, s, "[redacted]")
	}
	return cleaner{strings.NewReplacer(pairs...)}
}

// secretArgs returns the values of arguments such as --api-key=V, --token V and
// PASSWORD=V.
func secretArgs(args []string) []string {
	var out []string
	for i, a := range args {
		if name, value, ok := strings.Cut(a, "="); ok && looksSecret(name) {
			out = append(out, value)
		} else if !ok && strings.HasPrefix(a, "-") && looksSecret(a) && i+1 < len(args) && !strings.HasPrefix(args[i+1], "-") {
			out = append(out, args[i+1])
		}
	}
	return out
}

func looksSecret(name string) bool {
	name = strings.ToLower(name)
	for _, word := range []string{"key", "token", "secret", "passw", "auth", "credential"} {
		if strings.Contains(name, word) {
			return true
		}
	}
	return false
}

// line makes s one line that may be shown.
func (c cleaner) line(s string) string {
	if !utf8.ValidString(s) {
		s = strings.ToValidUTF8(s, "\uFFFD")
	}
	s = tool.CleanLine(s)
	if c.secrets != nil {
		s = c.secrets.Replace(s)
	}
	return strings.TrimSpace(s)
}

// short is line, cut to max bytes on a rune boundary.
func (c cleaner) short(s string, max int) string {
	// Cleaning only shortens, but a secret must not be cut in two before it is
	// recognised, so the cut comes last; a first rough one bounds the work.
	if rough := max*8 + 4096; len(s) > rough {
		s = s[:rough]
	}
	return cut(c.line(s), max)
}

func cut(s string, max int) string {
	if len(s) <= max {
		return s
	}
	end := max - len("…")
	for end > 0 && !utf8.RuneStart(s[end]) {
		end--
	}
	return s[:end] + "…"
}

// place is a URL as it may be shown: without userinfo, query and fragment.
func place(raw string) string {
	u, err := url.Parse(raw)
	if err != nil || u.Host == "" {
		return "its url"
	}
	return (&url.URL{Scheme: u.Scheme, Host: u.Host, Path: u.Path}).String()
}
