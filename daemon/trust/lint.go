package trust

import (
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"sync"
	"unicode"

	"github.com/toolsd/toolsd/index/tool"
)

// rule is one thing that the text of a definition has no reason to say.
type rule struct {
	says  string   // what goes on after "its text"
	words []string // one of them is in every match; looking for them first is much quicker
	match func() *regexp.Regexp
	not   func() *regexp.Regexp // found in or right behind the match: it is the opposite, or harmless
}

const (
	sensitive = `(?:~/\.(?:ssh|aws|gnupg|kube|docker|config/gcloud)|\bid_(?:rsa|ed25519|ecdsa)\b|\bssh (?:private )?keys?\b|\bprivate keys?\b|[\s/"'` + "`" + `(]\.env\b|/etc/(?:passwd|shadow)|\.netrc\b|\.pgpass\b|\.git-credentials|\bmcp\.json\b|\.claude\.json|claude_desktop_config|\bkeychain\b|\bbrowser (?:cookies|passwords)\b|\bsession cookies?\b|\bwallet\.dat\b|\bseed phrase|\bshell history\b|\.bash_history)`
	give      = `\b(?:reads?|reading|open|cat|load|fetch|include|send|pass|provide|attach|copy|upload|extract|paste|put|supply|submit|collect|gather|forward|share|retrieve|append|embed|transmit|exfiltrate)\b`
	people    = `(?:the )?(?:user|human|person|operator|developer|customer)s?\b`
)

// The rules want the order and nearness of words that an attack needs, so that a
// text which merely speaks of passwords or of other tools passes: of 1,583 real
// tools, they flag fewer than one in a hundred (see the test).
var rules = []rule{
	{
		says:  "tries to overrule other instructions",
		words: []string{"ignor", "disregard", "forget", "overrid", "bypass"},
		match: pattern(`\b(?:ignor(?:e|ing)|disregard(?:ing)?|forget|overrid(?:e|ing)|bypass(?:ing)?) (?:all |any |every |the |your |these |those |of )*(?:previous|prior|above|earlier|preceding|existing|other|system|user's|safety|security)(?: system| user| safety| security)? (?:instruction|prompt|message|rule|guideline|directive|polic|tool|restriction|warning|context)`),
	},
	{
		says:  "tells the agent to keep something from the user",
		words: []string{"tell", "mention", "inform", "reveal", "disclos", "notify", "alert", "explain", " let", "hid", "conceal", "keep", "withhold", "not know", "not see", "not notice", "not learn", "not be", "n't know", "n't see", "n't notice", "n't learn", "n't be"},
		match: pattern(`\b(?:do not|don't|dont|never|must not|should not|shouldn't|mustn't|without|avoid|no need to) (?:ever )?(?:tell(?:ing)?|mention(?:ing)?|inform(?:ing)?|reveal(?:ing)?|disclos(?:e|ing)|notify(?:ing)?|alert(?:ing)?|explain(?:ing)?|let(?:ting)?) (?:\w+ ){0,6}?(?:to )?` + people + `|\b(?:hide|hidden|conceal|keep|withhold) (?:this |it |that |these |the \w+ )?(?:\w+ )?(?:secret )?from ` + people + `|` + people + ` (?:must|should|may|need|does|do|will|can)(?: not|n't) (?:know|be told|see|notice|learn|be aware|be informed)|\b(?:do not|don't|never) (?:mention|reveal|disclose) (?:this|that|these|any of this|it)\b`),
	},
	{
		says:  "wants to be called before or instead of all other tools",
		words: []string{"before", "prior to", "always", "must", "first", "instead of", "has to", "needs to"},
		match: pattern(`\b(?:before|prior to) (?:using|calling|invoking|running|executing|you (?:use|call)) (?:any|every|all|each)(?: of)?(?: the)?(?: other)? (?:tool|function)|\b(?:always|must|first)(?: \w+){0,3} (?:call|use|invoke|run|execute|called|used|invoked) (?:this|it)(?: tool| function)? (?:first|before (?:any|every|all|each)|before (?:using|calling)|on every|in every|for every|after every|with every|at the start of every)|\binstead of (?:any|all|every)(?: of the)? other tools?\b|\b(?:this|it)(?: tool)? (?:must|has to|needs to) (?:always )?be (?:called|used|invoked|run) (?:first|before (?:any|every|all))(?: other)? tools?`),
	},
	{
		says:  "asks for files or keys that hold secrets",
		words: []string{"~/.", "id_", "ssh ", "private key", ".env", "/etc/", ".netrc", ".pgpass", ".git-", "mcp.json", ".claude", "claude_desktop", "keychain", "browser ", "session cookie", "wallet", "seed phrase", "history"},
		match: pattern(give + `(?:[^.;!?]|\.\S){0,80}` + sensitive),
		not:   pattern(`\.pub\b|\bpublic key|\b(?:not|never|cannot|without|don't)\b|\b(?:refus|reject|block|den(?:y|ies)|redact)`),
	},
	{
		says:  "asks for passwords or tokens of the user",
		words: []string{"password", "passphrase", "api", "token", "secret", "credential", "card", "pin code", "one-time", "login data"},
		match: pattern(give + ` (?:me |us |along |in |also )?(?:all |any )?(?:of )?(?:the user's|the users'|users?'s?|your|their|his|her) (?:\w+ ){0,2}(?:passwords?|passphrases?|api[ _-]?keys?|access tokens?|secret keys?|credentials|credit card|card number|pin code|one-time code|login data)\b`),
		not:   pattern(`\b(?:not|never|without|don't)\b`),
	},
	{
		says:  "asks for the conversation or the environment",
		words: []string{"conversation", "chat", "message history", "environment variable", "env vars", "system prompt"},
		match: pattern(give + `[^.;!?]{0,50}\b(?:(?:entire|full|whole|complete|all(?: of)?(?: the)?|previous) (?:conversation|chat|message history|environment variables|env vars)|(?:conversation|chat) (?:history|transcript|log)|system prompt|contents? of (?:this|the) (?:conversation|chat)|environment variables (?:of|from|in) (?:the|this) (?:machine|process|shell|user))`),
		not:   pattern(`\b(?:not|never|without|don't)\b`),
	},
	{
		says:  "speaks to the agent in a tag that people do not read",
		words: []string{"<", "[/", "[inst", "[system"},
		match: pattern(`<\s?/?(?:important|system|hidden|instructions?|admin|critical|override|assistant|system-reminder)\b[^>]{0,40}>|<!--|\[/?(?:inst|system)\]|<\|im_start`),
	},
}

// LintTool flags text that has no place in a tool's definition, each as what "its
// text" does: steering the agent, asking for secrets, hiding from people, or
// speaking of tools of other servers. others reports whether a name is a tool of
// another server and of none of the tool's own.
//
// It is for warnings only: it finds what is written plainly, and no more. What it
// found in a text is remembered, so that this may be asked often.
func LintTool(t *tool.Tool, others func(name string) bool) []string {
	found := lint(t)
	out := slices.Clone(found.says)
	if others == nil {
		return out
	}
	var named []string
	for _, name := range found.names {
		if len(named) < 3 && others(name) {
			named = append(named, name)
		}
	}
	if len(named) > 0 {
		out = append(out, fmt.Sprintf("speaks of tools of other servers: %s", strings.Join(named, ", ")))
	}
	return out
}

// linted is what a definition tells by itself, whatever other tools there are.
type linted struct {
	says  []string // as LintTool returns them
	names []string // words that may be names of tools, none of them its own
}

// definition is what lint looks at.
type definition struct {
	sum    [sha256.Size]byte // of Raw
	hidden bool
}

// remembered holds what lint found. Looking through a definition takes some 0.4 ms,
// and a list of what waits asks about all tools of all servers.
var remembered struct {
	sync.Mutex
	of map[definition]linted
}

// maxLinted bounds remembered: more definitions than a person's servers have.
const maxLinted = 1 << 15

func lint(t *tool.Tool) linted {
	key := definition{sha256.Sum256(t.Raw), t.Hidden}
	remembered.Lock()
	found, ok := remembered.of[key]
	remembered.Unlock()
	if ok {
		return found
	}
	found = lookThrough(t)
	remembered.Lock()
	defer remembered.Unlock()
	if remembered.of == nil || len(remembered.of) >= maxLinted {
		remembered.of = map[definition]linted{}
	}
	remembered.of[key] = found
	return found
}

func lookThrough(t *tool.Tool) linted {
	var out linted
	var all []string
	own := map[string]bool{t.Name: true}
	var walk func(v any)
	walk = func(v any) {
		switch v := v.(type) {
		case string:
			all = append(all, v)
		case []any:
			for _, e := range v {
				walk(e)
			}
		case map[string]any:
			for k, e := range v {
				own[k] = true // a name of a parameter
				all = append(all, k)
				walk(e)
			}
		}
	}
	var fields map[string]any
	if json.Unmarshal(t.Raw, &fields) != nil {
		return out
	}
	delete(fields, "icons")
	walk(fields)
	slices.Sort(all) // maps have no order, and the answer shall
	found := make([]bool, len(rules))
	invisible := t.Hidden
	for _, text := range all {
		if len(text) < minText {
			continue
		}
		invisible = invisible || hidesText(text)
		plain := plainText(text)
		for i, r := range rules {
			found[i] = found[i] || r.in(plain)
		}
		for _, name := range toolName().FindAllString(text, -1) {
			if !own[name] {
				own[name] = true // once is enough
				out.names = append(out.names, strings.Clone(name))
			}
		}
	}
	for i, r := range rules {
		if found[i] {
			out.says = append(out.says, r.says)
		}
	}
	if invisible {
		out.says = append(out.says, "carries hidden characters or text pushed out of sight")
	}
	return out
}

func (r rule) in(plain string) bool {
	if !slices.ContainsFunc(r.words, func(w string) bool { return strings.Contains(plain, w) }) {
		return false
	}
	for _, m := range r.match().FindAllStringIndex(plain, -1) {
		// "… are refused" and "….pub" stand behind; 20 characters are such a word.
		if r.not == nil || !r.not().MatchString(plain[m[0]:min(len(plain), m[1]+20)]) {
			return true
		}
	}
	return false
}

// minText is the shortest text that can say anything of this: shorter ones are
// names and types.
const minText = 12

// toolName is a word that is more likely the name of a tool than a word of a
// sentence: joined by underscores, or hyphens between at least three parts, or
// with capitals inside.
var toolName = pattern(`\b(?:[a-zA-Z0-9]+_[a-zA-Z0-9_-]+|[a-z0-9]+-[a-z0-9]+-[a-z0-9-]+|[a-z]+[A-Z][a-zA-Z0-9]+)\b`)

var straight = strings.NewReplacer("’", "'", "‘", "'", "“", `"`, "”", `"`)

// plainText is s in lower case, without emphasis, with single spaces.
func plainText(s string) string {
	words := strings.FieldsFunc(strings.ToLower(s), func(r rune) bool { return r == '*' || unicode.IsSpace(r) })
	return straight.Replace(strings.Join(words, " "))
}

// hidesText finds what the cleaning of definitions must leave in, since languages
// and emoji need it, where none of them does: runs of joiners and of variation
// selectors, fillers, joiners between Latin letters; and text far behind blanks.
func hidesText(s string) bool {
	run, blanks := 0, 0
	before := rune(0)
	var joiner bool
	for _, r := range s {
		switch {
		case r == 0x200c || r == 0x200d || r >= 0xfe00 && r <= 0xfe0f || r >= 0xe0100 && r <= 0xe01ef:
			run++
			joiner = joiner || isLatin(before)
			// An emoji has at most a selector and a joiner in a row.
			if run > 2 {
				return true
			}
			continue
		case r == 0x3164, r == 0xffa0, r == 0x115f, r == 0x1160, r == 0x2800 && before == 0x2800, r >= 0xfff9 && r <= 0xfffb:
			return true
		}
		if joiner && isLatin(r) {
			return true
		}
		if unicode.IsSpace(r) {
			// Farther than the height and width of most windows.
			if blanks++; blanks > 300 {
				return true
			}
		} else {
			blanks = 0
		}
		run, joiner, before = 0, false, r
	}
	return false
}

func isLatin(r rune) bool { return r < 0x250 && unicode.IsLetter(r) }
