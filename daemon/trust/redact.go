package trust

import (
	"cmp"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"net/url"
	"slices"
	"strings"

	"github.com/toolsd/toolsd/index/tool"
)

// mask stands where a secret stood.
const mask = "***"

// minSecret is the shortest value that is taken out wherever it stands. Shorter
// ones (true, 8080, debug) are words of their own, and would make texts unreadable.
const minSecret = 6

// Redactor takes secrets out of texts that leave the program: problems, lines of
// stderr, errors. It never changes after NewRedactor, so it is safe for concurrent
// use. The nil Redactor knows no values and still redacts by key.
type Redactor struct {
	values *strings.Replacer
}

// NewRedactor makes a Redactor of values that must not be seen, in any of the
// spellings that programs print: as they are, escaped for URLs, JSON or a quoted
// string, in hexadecimal or base64, also as a part of a longer base64 text.
func NewRedactor(secrets []string) *Redactor {
	spellings := map[string]bool{}
	add := func(s string) {
		if len(s) >= minSecret && strings.Trim(s, "*") != "" {
			spellings[s] = true
		}
	}
	for _, secret := range secrets {
		for _, part := range partsOf(secret) {
			if len(part) < minSecret {
				continue
			}
			add(part)
			add(url.QueryEscape(part))
			add(url.PathEscape(part))
			if quoted, err := json.Marshal(part); err == nil {
				add(string(quoted[1 : len(quoted)-1]))
			}
			add(strings.Trim(string(tool.Encode(part)), `"`))
			add(hex.EncodeToString([]byte(part)))
			for _, b := range base64Parts(part) {
				add(b)
			}
			if cleaned := tool.CleanLine(part); cleaned != part {
				add(cleaned)
			}
		}
	}
	if len(spellings) == 0 {
		return &Redactor{}
	}
	all := make([]string, 0, len(spellings))
	for s := range spellings {
		all = append(all, s)
	}
	// At one place the Replacer takes the first that fits, so the longest stand first.
	slices.SortFunc(all, func(a, b string) int { return cmp.Or(len(b)-len(a), strings.Compare(a, b)) })
	pairs := make([]string, 0, 2*len(all))
	for _, s := range all {
		pairs = append(pairs, s, mask)
	}
	return &Redactor{strings.NewReplacer(pairs...)}
}

// partsOf returns a secret and what is secret by itself in it: the token behind a
// scheme, each line of a key, the password and the query values of a URL.
func partsOf(secret string) []string {
	parts := []string{secret}
	if trimmed := strings.TrimSpace(secret); trimmed != secret {
		parts = append(parts, trimmed)
	}
	if lines := strings.FieldsFunc(secret, func(r rune) bool { return r == '\n' || r == '\r' }); len(lines) > 1 {
		for _, line := range lines {
			parts = append(parts, strings.TrimSpace(line))
		}
	}
	if scheme, token, ok := strings.Cut(secret, " "); ok {
		switch strings.ToLower(scheme) {
		case "bearer", "basic", "token", "apikey", "api-key", "key":
			parts = append(parts, strings.TrimSpace(token))
		}
	}
	if strings.Contains(secret, "://") {
		if u, err := url.Parse(secret); err == nil {
			if u.User != nil {
				parts = append(parts, u.User.String())
				if password, ok := u.User.Password(); ok {
					parts = append(parts, password)
				}
			}
			for _, values := range u.Query() {
				parts = append(parts, values...)
			}
		}
	}
	return parts
}

// base64Parts are the characters that a secret always gives in base64, at each
// of the three places in a group at which it may begin, so that it is found in
// the middle of user:secret too.
func base64Parts(secret string) []string {
	var out []string
	for shift := range 3 {
		padded := append(make([]byte, shift), secret...)
		whole := len(padded) / 3 * 3 // what follows shares its last character
		for _, encoding := range []*base64.Encoding{base64.RawStdEncoding, base64.RawURLEncoding} {
			text := encoding.EncodeToString(padded[:whole])
			// The first characters hold bits of what stands before.
			if text = text[min(len(text), []int{0, 2, 3}[shift]):]; len(text) >= minSecret {
				out = append(out, text)
			}
		}
	}
	if whole := base64.StdEncoding.EncodeToString([]byte(secret)); len(whole) >= minSecret {
		out = append(out, whole, strings.TrimRight(whole, "="))
		whole = base64.URLEncoding.EncodeToString([]byte(secret))
		out = append(out, whole, strings.TrimRight(whole, "="))
	}
	return out
}

// Redact returns s with all secrets replaced, those it knows by their value and
// those that stand behind a telling key.
func (r *Redactor) Redact(s string) string {
	if r != nil && r.values != nil {
		s = r.values.Replace(s)
	}
	return RedactKeys(s)
}

const (
	keyWord = `(?:token|secret|passw(?:or)?d|passwd|passphrase|pwd|api[_-]?key|apikey|access[_-]?key|private[_-]?key|client[_-]?key|subscription[_-]?key|credentials?|signature|authorization|cookie|bearer|session[_-]?id)`
	// A value that is a variable or a place to fill in is no secret.
	value = `[^\s"'<>$&,;*{}\[\]()\\][^\s"'&,;\\]{%s,}`
)

var (
	byAssign = pattern(`(?i)([\w.-]*` + keyWord + `[\w-]*\\?["']?\s?=\s?\\?["']?(?:(?:bearer|basic|token) +)?)` + strings.Replace(value, "%s", "2", 1))
	byColon  = pattern(`(?i)([\w.-]*` + keyWord + `\\?["']?: ?\\?["']?(?:(?:bearer|basic|token|digest) +)?)` + strings.Replace(value, "%s", "7", 1))
	byFlag   = pattern(`(?i)((?:^|\s)--?[\w-]*` + keyWord + `[\w-]*\s+)` + strings.Replace(value, "%s", "2", 1))
	byScheme = pattern(`(?i)(\b(?:bearer|basic) +)[\w.~+/=-]{12,}`)
	byUser   = pattern(`(\b[a-zA-Z][\w+.-]*://)[^\s/@"'<>]+@`)
	byShape  = pattern(`\b(?:gh[pousr]_\w{20,}|github_pat_\w{20,}|glpat-[\w-]{16,}|sk-[\w-]{20,}|sk_(?:live|test)_\w{16,}|xox[abeprs]-[\w-]{10,}|AKIA[0-9A-Z]{16}|AIza[\w-]{30,}|npm_\w{30,}|hf_\w{30,}|eyJ[\w-]{10,}\.[\w-]{10,}\.[\w-]*)`)
)

// RedactKeys takes out what stands behind a telling key (token=…, Authorization: …,
// --api-key …), in the userinfo of a URL, or has the shape of a well-known token.
func RedactKeys(s string) string {
	if !mayHoldKey(s) {
		return s
	}
	s = byUser().ReplaceAllString(s, "${1}"+mask+"@")
	s = byAssign().ReplaceAllString(s, "${1}"+mask)
	s = byFlag().ReplaceAllString(s, "${1}"+mask)
	s = byColon().ReplaceAllString(s, "${1}"+mask)
	s = byScheme().ReplaceAllString(s, "${1}"+mask)
	return byShape().ReplaceAllString(s, mask)
}

// mayHoldKey is a quick look, for the most texts that hold nothing.
func mayHoldKey(s string) bool {
	lower := strings.ToLower(s)
	for _, w := range []string{"token", "secret", "pass", "pwd", "key", "credential", "signature", "auth", "cookie", "bearer", "basic ",
		"session", "://", "ghp_", "gho_", "ghu_", "ghs_", "ghr_", "github_pat_", "glpat-", "sk-", "sk_", "xox", "akia", "aiza", "npm_", "hf_", "eyj"} {
		if strings.Contains(lower, w) {
			return true
		}
	}
	return false
}

var secretFlag = pattern(`(?i)^--?[\w-]*` + keyWord + `[\w-]*$`)

// maskedArgs are the words of a command line for keeping.
func maskedArgs(args []string) []string {
	out := make([]string, len(args))
	for i, a := range args {
		switch {
		case i > 0 && secretFlag().MatchString(args[i-1]) && !strings.HasPrefix(a, "-") && !strings.HasPrefix(a, "$"):
			out[i] = mask
		case strings.Contains(a, "://"):
			out[i] = shownURL(RedactKeys(tool.CleanLine(a)))
		default:
			out[i] = RedactKeys(tool.CleanLine(a))
		}
	}
	return out
}

// shownURL is a URL with the userinfo and the values of its query masked, but for
// variables.
func shownURL(raw string) string {
	raw = tool.CleanLine(raw)
	raw = byUser().ReplaceAllString(raw, "${1}"+mask+"@")
	before, query, ok := strings.Cut(raw, "?")
	if !ok {
		return raw
	}
	query, fragment, _ := strings.Cut(query, "#")
	pairs := strings.Split(query, "&")
	for i, pair := range pairs {
		if name, v, ok := strings.Cut(pair, "="); ok && !(strings.HasPrefix(v, "${") && strings.HasSuffix(v, "}")) {
			pairs[i] = name + "=" + mask
		}
	}
	out := before + "?" + strings.Join(pairs, "&")
	if fragment != "" {
		out += "#" + mask
	}
	return out
}
