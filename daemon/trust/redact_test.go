package trust

import (
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net/url"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

func TestRedactByValue(t *testing.T) {
	const secret = `p@ss w/"ö<&>=x`
	r := NewRedactor([]string{secret, "short", "Bearer tok-9817-abc", "line one\nline two 2", "postgres://bob:hunter22@db/x?sslkey=qqqqqq1", "******"})
	quoted, _ := json.Marshal(secret)
	for name, text := range map[string]string{
		"as it is":         secret,
		"query":            url.QueryEscape(secret),
		"path":             url.PathEscape(secret),
		"JSON":             string(quoted[1 : len(quoted)-1]),
		"JSON, plain":      strings.ReplaceAll(secret, `"`, `\"`),
		"base64":           base64.StdEncoding.EncodeToString([]byte(secret)),
		"base64 for URLs":  base64.RawURLEncoding.EncodeToString([]byte(secret)),
		"hexadecimal":      hex.EncodeToString([]byte(secret)),
		"token of bearer":  "tok-9817-abc",
		"whole header":     "Bearer tok-9817-abc",
		"one line of many": "line two 2",
		"password of URL":  "hunter22",
		"query of URL":     "qqqqqq1",
	} {
		got := r.Redact("it said: " + text + "!")
		if strings.Contains(got, text) || !strings.HasPrefix(got, "it said: "+mask) || !strings.HasSuffix(got, "!") {
			t.Errorf("%s: %q", name, got)
		}
	}
	for _, user := range []string{"u:", "us:", "use:"} { // the three places in a group of base64
		whole := base64.StdEncoding.EncodeToString([]byte(user + secret + "zz"))
		got := r.Redact(whole)
		if len(got) > len(whole)/2 {
			t.Errorf("in the middle of base64: %q stays %q", whole, got)
		}
	}
	if got := r.Redact("a short text, a test"); got != "a short text, a test" {
		t.Errorf("short values are words: %q", got)
	}
	if got := (*Redactor)(nil).Redact("password=abcdef"); got != "password="+mask {
		t.Errorf("without values: %q", got)
	}
}

func TestRedactByKey(t *testing.T) {
	for text, want := range map[string]string{
		"GET /?token=abc123&x=1":                          "GET /?token=***&x=1",
		`{"api_key":"abcd1234","n":1}`:                    `{"api_key":"***","n":1}`,
		`"{\"password\": \"abcd1234\"}"`:                  `"{\"password\": \"***\"}"`,
		"Authorization: Bearer abcdefgh1234":              "Authorization: Bearer ***",
		"authorization: Basic dXNlcjpwYXNz":               "authorization: Basic ***",
		"sent Bearer abcdefgh12345678 to it":              "sent Bearer *** to it",
		"run with --api-key s3cr3t --port 80":             "run with --api-key *** --port 80",
		"--access-token=s3cr3t":                           "--access-token=***",
		"GITHUB_TOKEN=ghx123 node x":                      "GITHUB_TOKEN=*** node x",
		"MY_SECRET_KEY='abc def'":                         "MY_SECRET_KEY='*** def'",
		"postgres://bob:pw@host/db":                       "postgres://***@host/db",
		"dial https://tok@host/x: refused":                "dial https://***@host/x: refused",
		"key ghp_" + strings.Repeat("a1", 18) + " is bad": "key *** is bad",
		"Cookie: session=abcdefgh":                        "Cookie: ***",
		// Nothing of a secret.
		"Unexpected token < in JSON at position 0": "Unexpected token < in JSON at position 0",
		"invalid token: } expected":                "invalid token: } expected",
		"needs GITHUB_TOKEN":                       "needs GITHUB_TOKEN",
		"set token=${TOKEN} in the file":           "set token=${TOKEN} in the file",
		"the password is wrong":                    "the password is wrong",
		"missing token: set it":                    "missing token: set it",
		"https://host:8080/path@2":                 "https://host:8080/path@2",
		"read 291,000 tokens of schemas":           "read 291,000 tokens of schemas",
		"keyboard: us, monkey: banana, tokens: 12": "keyboard: us, monkey: banana, tokens: 12",
		"npx -y @scope/pkg@1.2.3 --token-file x/y": "npx -y @scope/pkg@1.2.3 --token-file ***",
	} {
		if got := RedactKeys(text); got != want {
			t.Errorf("%q\n got %q\nwant %q", text, got, want)
		}
	}
}

func TestShownURL(t *testing.T) {
	for raw, want := range map[string]string{
		"https://h/mcp":                       "https://h/mcp",
		"https://u:p@h/mcp?key=1&b=${B}&c#fr": "https://***@h/mcp?key=***&b=${B}&c#***",
		"https://${HOST}/mcp":                 "https://${HOST}/mcp",
	} {
		if got := shownURL(raw); got != want {
			t.Errorf("%s: %s, want %s", raw, got, want)
		}
	}
}

// TestNoSpellingStays: whatever the secret and the text around it, none of its
// spellings is in the result.
func TestNoSpellingStays(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		secret := strings.ToValidUTF8(rapid.StringN(6, 40, -1).Draw(t, "secret"), "")
		if len(secret) < minSecret || strings.Trim(secret, "*") == "" {
			return
		}
		r := NewRedactor([]string{secret})
		quoted, _ := json.Marshal(secret)
		for _, spelled := range []string{secret, url.QueryEscape(secret), string(quoted), base64.StdEncoding.EncodeToString([]byte(secret))} {
			text := fmt.Sprintf("[%s]%s", spelled, spelled)
			if got := r.Redact(text); strings.Contains(got, spelled) && !strings.Contains(mask+"[]", spelled) {
				t.Fatalf("%q stays in %q", spelled, got)
			}
		}
	})
}

func BenchmarkRedact(b *testing.B) {
	var secrets []string
	for i := range 60 {
		secrets = append(secrets, fmt.Sprintf("secret value number %d", i))
	}
	r := NewRedactor(secrets)
	line := strings.Repeat("2026-11-30 INFO connected to the server and listed 20 tools. ", 4)
	b.SetBytes(int64(len(line)))
	for b.Loop() {
		r.Redact(line)
	}
}
