package trust

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strings"

	"github.com/toolsd/toolsd/index/tool"
	"github.com/toolsd/toolsd/watcher/clientconfig"
)

// Fingerprint is the hash of all of a server's definition that decides what runs,
// with what, and where its secrets go. The empty one is never approved.
type Fingerprint string

// Details say what went into a fingerprint, to show after a change what is
// different. Values of env and headers are in it as hashes only, arguments with
// what looks like a secret masked.
type Details struct {
	Root      string            `json:"root,omitempty"`
	File      string            `json:"file"` // the source
	Transport string            `json:"transport,omitempty"`
	Command   string            `json:"command,omitempty"`
	Args      []Argument        `json:"args,omitempty"`
	Dir       string            `json:"dir,omitempty"`
	URL       string            `json:"url,omitempty"`
	URLHash   string            `json:"url_hash,omitempty"`
	Env       map[string]string `json:"env,omitempty"`     // name → hash of the value
	Headers   map[string]string `json:"headers,omitempty"` // name in lower case → hash of the value
	Forward   []string          `json:"forward,omitempty"`
	EnvFile   string            `json:"env_file,omitempty"`
	Files     []File            `json:"files,omitempty"` // of the project, that it runs or reads
	Unfit     string            `json:"-"`               // why there is no fingerprint
}

// Argument is one word of a command line.
type Argument struct {
	Text string `json:"text"` // masked, and cut
	Hash string `json:"hash"`
}

// File is a file of the project that is part of a server's definition.
type File struct {
	Path string `json:"path"` // below the root, with slashes
	Hash string `json:"hash,omitempty"`
	Link string `json:"link,omitempty"` // where the path leads when it leads out of the project; that is not read
}

// FingerprintOf hashes a server's definition.
//
// written is the entry as it is in the file: every value in it counts, but a
// variable counts by its name, so that a token that rotates in the user's
// environment does not ask again. Of expanded (may be the zero Server) only the
// command, the directory and the host of the URL count as well, since those
// decide what gets the tokens.
//
// root is the project whose file it is; empty for none. Files of the project that
// the command line names or that its program runs from there by itself (see
// launchers) count with their content, read through an os.Root. A link out of the
// project counts with its target, which is not looked at: a stat of a foreign
// path can already reach the network. What a script imports is not followed.
//
// When a file cannot be read, the Fingerprint is empty, and Details.Unfit says why.
// Hashes of files are remembered by their size and times, so this may be asked often.
func FingerprintOf(written, expanded clientconfig.Server, root string) (Fingerprint, Details) {
	if written.Command == "" && written.URL == "" {
		written = expanded
	}
	if expanded.Command == "" && expanded.URL == "" {
		expanded = written
	}
	d := Details{
		Root:      root,
		File:      written.Source.File,
		Transport: string(written.Transport),
		Command:   shown(written.Command),
		Dir:       written.Dir,
		URL:       shownURL(written.URL),
		EnvFile:   written.EnvFile,
		Forward:   slices.Sorted(slices.Values(written.Forward)),
		Env:       hashes(written.Env, func(s string) string { return s }),
		Headers:   hashes(written.Headers, strings.ToLower),
	}
	for _, name := range slices.Sorted(maps.Keys(written.HeaderVars)) {
		d.Headers = with(d.Headers, name, "variable", written.HeaderVars[name])
	}
	if written.BearerVar != "" {
		d.Headers = with(d.Headers, "authorization", "token in variable", written.BearerVar)
	}
	if written.URL != "" {
		d.URLHash = hashOf("url", written.URL)
	}
	for i, text := range maskedArgs(written.Args) {
		d.Args = append(d.Args, Argument{Text: cut(text), Hash: hashOf("argument", written.Args[i])})
	}
	files, err := projectFiles(written, expanded, root)
	if err != nil {
		d.Unfit = err.Error()
		return "", d
	}
	d.Files = files

	h := sha256.New()
	put := func(label string, values ...string) {
		// Counts and lengths stand before the bytes, so that no two definitions
		// give the same stream.
		fmt.Fprintf(h, "%s %d\n", label, len(values))
		for _, v := range values {
			fmt.Fprintf(h, "%d:%s\n", len(v), v)
		}
	}
	put("toolsd server", "1") // the number changes when what is hashed does; all servers then ask again
	put("source", written.Source.File)
	put("transport", string(written.Transport))
	put("command", written.Command, expanded.Command)
	put("args", written.Args...)
	put("dir", written.Dir, expanded.Dir)
	put("url", written.URL, hostOf(expanded.URL))
	put("env", flat(d.Env)...)
	put("env file", written.EnvFile)
	put("headers", flat(d.Headers)...)
	put("forward", d.Forward...)
	for _, f := range d.Files {
		put("file", f.Path, f.Hash, f.Link)
	}
	return Fingerprint(hex.EncodeToString(h.Sum(nil))), d
}

// hostOf is the part of a URL that says who gets the request.
func hostOf(raw string) string {
	u, err := url.Parse(raw)
	if err != nil {
		return raw
	}
	return u.Scheme + "://" + u.Host
}

// hashOf is the whole sha256, since a definition comes from someone who may try
// to find two with one hash. The kind and length keep values of different places
// from having the same one.
func hashOf(kind, value string) string {
	sum := sha256.Sum256(fmt.Appendf(nil, "%s %d:%s", kind, len(value), value))
	return hex.EncodeToString(sum[:])
}

func hashes(values map[string]string, name func(string) string) map[string]string {
	if len(values) == 0 {
		return nil
	}
	out := make(map[string]string, len(values))
	for _, k := range slices.Sorted(maps.Keys(values)) {
		// Two spellings of one header are sent as two.
		out[name(k)] += hashOf("value", values[k])
	}
	return out
}

// with adds a header whose value comes from a variable.
func with(headers map[string]string, name, kind, variable string) map[string]string {
	if headers == nil {
		headers = map[string]string{}
	}
	headers[strings.ToLower(name)] += hashOf(kind, variable)
	return headers
}

func flat(m map[string]string) []string {
	var out []string
	for _, k := range slices.Sorted(maps.Keys(m)) {
		out = append(out, k, m[k])
	}
	return out
}

// maxShown keeps a long script in an argument from filling the file; its hash
// covers all of it.
const maxShown = 300

func cut(s string) string {
	if len(s) <= maxShown {
		return s
	}
	return strings.ToValidUTF8(s[:maxShown], "") + "…"
}

func shown(s string) string { return cut(tool.CleanLine(s)) }

// Changes says in sentences what is different now from what was approved. It
// names env and headers, but never a value.
func (d Details) Changes(now Details) []string {
	var out []string
	say := func(format string, args ...any) { out = append(out, fmt.Sprintf(format, args...)) }
	field := func(what, before, after string) {
		switch was, is := shown(before), shown(after); {
		case before == after:
		case before == "":
			say("%s is new: %s", what, is)
		case after == "":
			say("%s is gone, was %s", what, was)
		case was == is:
			say("%s is different in a hidden part: %s", what, is)
		default:
			say("%s was %s, is %s", what, was, is)
		}
	}
	field("the source file", d.File, now.File)
	field("the transport", d.Transport, now.Transport)
	field("the command", d.Command, now.Command)
	out = append(out, argChanges(d.Args, now.Args)...)
	field("the working directory", d.Dir, now.Dir)
	if d.URL != now.URL {
		field("the URL", d.URL, now.URL)
	} else if d.URLHash != now.URLHash {
		say("a hidden part of the URL %s is different", now.URL)
	}
	names := func(what string, before, after map[string]string) {
		all := maps.Clone(before)
		if all == nil {
			all = map[string]string{}
		}
		maps.Copy(all, after)
		for _, k := range slices.Sorted(maps.Keys(all)) {
			b, was := before[k]
			a, is := after[k]
			switch k := shown(k); {
			case !was:
				say("%s %s is new", what, k)
			case !is:
				say("%s %s is gone", what, k)
			case a != b:
				say("the value of %s %s is different", what, k)
			}
		}
	}
	names("env", d.Env, now.Env)
	field("the env file", d.EnvFile, now.EnvFile)
	names("header", d.Headers, now.Headers)
	if !slices.Equal(d.Forward, now.Forward) {
		say("the variables that are passed on were [%s], are [%s]", shown(strings.Join(d.Forward, " ")), shown(strings.Join(now.Forward, " ")))
	}
	if now.Unfit != "" {
		return append(out, shown(now.Unfit))
	}
	before, after := map[string]File{}, map[string]File{}
	for _, f := range d.Files {
		before[f.Path] = f
	}
	for _, f := range now.Files {
		after[f.Path] = f
		b, was := before[f.Path]
		switch path := shown(f.Path); {
		case !was:
			say("the file %s is new", path)
		case b.Link != f.Link:
			say("the file %s leads to %s now", path, cmp.Or(shown(f.Link), "itself"))
		case b.Hash != f.Hash:
			say("the content of the file %s is different", path)
		}
	}
	for _, f := range d.Files {
		if _, is := after[f.Path]; !is {
			say("the file %s is gone", shown(f.Path))
		}
	}
	return out
}

// argChanges compares two command lines word by word, after what they begin and
// end with in common.
func argChanges(before, after []Argument) []string {
	start := 0
	for start < len(before) && start < len(after) && before[start].Hash == after[start].Hash {
		start++
	}
	end := 0
	for end < len(before)-start && end < len(after)-start && before[len(before)-1-end].Hash == after[len(after)-1-end].Hash {
		end++
	}
	was, is := before[start:len(before)-end], after[start:len(after)-end]
	var out []string
	for i := range max(len(was), len(is)) {
		n := start + i + 1
		switch {
		case i >= len(was):
			out = append(out, fmt.Sprintf("argument %d is new: %s", n, is[i].Text))
		case i >= len(is):
			out = append(out, fmt.Sprintf("argument %d is gone, was %s", n, was[i].Text))
		case was[i].Hash == is[i].Hash:
		case was[i].Text == is[i].Text:
			out = append(out, fmt.Sprintf("argument %d is different in a hidden part: %s", n, is[i].Text))
		default:
			out = append(out, fmt.Sprintf("argument %d was %s, is %s", n, was[i].Text, is[i].Text))
		}
	}
	return out
}
