package platform

import (
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"unicode/utf8"

	"pgregory.net/rapid"
)

// hardValues are what a directory or a variable may be called.
var hardValues = []string{
	"", "plain", "two words", " leading", "trailing ", "100%", "%h/%n", "$HOME", "${HOME}", "$$", `a"b`, `a'b`, `a\b`, `a\x20b`, `\`,
	"{{Path}}", "{{", "}}", "{{if X}}", "a;b", "# no comment", "; none", "-dash", "@at", "!bang", "+plus", ":colon", "ü 日本 🙂", "a=b", "<&>'\"", "]]>", "\u00a0",
}

// systemdWords reads a line of a unit as systemd.syntax(7) and the part about
// quoting of systemd.service(5) say.
func systemdWords(t *testing.T, line string) []string {
	t.Helper()
	var words []string
	for i := 0; i < len(line); {
		if line[i] == ' ' {
			i++
			continue
		}
		var b strings.Builder
		quoted := false
		for ; i < len(line) && (quoted || line[i] != ' '); i++ {
			switch {
			case line[i] == '"':
				quoted = !quoted
			case line[i] == '\\' && i+3 < len(line) && line[i+1] == 'x':
				n, err := strconv.ParseUint(line[i+2:i+4], 16, 8)
				if err != nil {
					t.Fatalf("%q: %v", line, err)
				}
				b.WriteByte(byte(n))
				i += 3
			case line[i] == '\\' && i+1 < len(line):
				i++
				if line[i] != '\\' && line[i] != '"' {
					t.Fatalf("%q: escape \\%c", line, line[i])
				}
				b.WriteByte(line[i])
			case line[i] == '%':
				if i++; i == len(line) || line[i] != '%' {
					t.Fatalf("%q: a specifier", line)
				}
				b.WriteByte('%')
			default:
				b.WriteByte(line[i])
			}
		}
		if quoted {
			t.Fatalf("%q: a quote is open", line)
		}
		words = append(words, b.String())
	}
	return words
}

// values are those of one key in a unit, which is read as lines and nothing else.
func unitValues(text, key string) []string {
	var out []string
	for line := range strings.Lines(text) {
		if value, ok := strings.CutPrefix(line, key+"="); ok {
			out = append(out, strings.TrimSuffix(value, "\n"))
		}
	}
	return out
}

func TestSystemdUnitKeepsEveryValue(t *testing.T) {
	for _, v := range hardValues {
		o := ServiceOptions{Executable: "/opt/bin/toolsd", Args: []string{"serve", v}, Env: []string{"TOOLSD_DIR=" + v}}
		text, err := systemdUnit(o, "")
		if err != nil {
			t.Errorf("%q: %v", v, err)
			continue
		}
		if strings.Contains(text, "{{") {
			t.Errorf("%q: the unit would be taken for a template:\n%s", v, text)
		}
		command := systemdWords(t, unitValues(text, "ExecStart")[0])
		if len(command) != 3 || command[0] != o.Executable || command[1] != "serve" || strings.ReplaceAll(command[2], "$$", "$") != v {
			t.Errorf("%q came back as %q", v, command)
		}
		env := systemdWords(t, unitValues(text, "Environment")[0])
		if len(env) != 1 || env[0] != o.Env[0] {
			t.Errorf("%q came back as %q", o.Env, env)
		}
	}
}

func TestSystemdUnitAnyValue(t *testing.T) {
	plain, err := systemdUnit(ServiceOptions{Executable: "/opt/bin/toolsd", Env: []string{"A=x"}}, "")
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.Count(plain, "\n")
	rapid.Check(t, func(r *rapid.T) {
		v := rapid.OneOf(rapid.String(), rapid.StringOf(rapid.SampledFrom([]rune("\"\\%${}' \n\x00a")))).Draw(r, "value")
		text, err := systemdUnit(ServiceOptions{Executable: "/opt/bin/toolsd", Env: []string{"A=" + v}}, "")
		if err != nil {
			if oneLine(v) == nil {
				r.Fatalf("%q is refused: %v", v, err)
			}
			return
		}
		if got := strings.Count(text, "\n"); got != lines {
			r.Fatalf("%q makes %d lines of %d:\n%s", v, got, lines, text)
		}
		if env := systemdWords(t, unitValues(text, "Environment")[0]); len(env) != 1 || env[0] != "A="+v {
			r.Fatalf("%q came back as %q", v, env)
		}
	})
}

func TestServiceRefusesWhatNoFileCanHold(t *testing.T) {
	for _, bad := range []string{"a\nExecStart=/bin/evil", "a\x00b", "a\rb", "tab\there", "\x1b[31m", "\u2028", "\u0085", string([]byte{0xff})} {
		for name, o := range map[string]ServiceOptions{
			"variable": {Executable: "/opt/toolsd", Env: []string{"TOOLSD_DIR=" + bad}},
			"argument": {Executable: "/opt/toolsd", Args: []string{bad}},
			"path":     {Executable: "/opt/" + bad},
			"name":     {Executable: "/opt/toolsd", Env: []string{bad + "=x"}},
			"user":     {Executable: "/opt/toolsd", System: true, User: bad},
		} {
			if text, err := systemdUnit(o, "0"); err == nil {
				t.Errorf("systemd: the %s %q is taken:\n%s", name, bad, text)
			}
			if text, err := launchdPlist(o); err == nil {
				t.Errorf("launchd: the %s %q is taken:\n%s", name, bad, text)
			}
			if name == "user" {
				continue // a task's user is the one who is logged in
			}
			if text, err := logonTask(o, "me"); err == nil {
				t.Errorf("task: the %s %q is taken:\n%s", name, bad, text)
			}
		}
	}
	for _, name := range []string{"", "-x", "a b", "a%b", "a:b", "../x", "ü"} {
		if _, err := systemdUnit(ServiceOptions{Executable: "/opt/toolsd", System: true, User: name}, "0"); err == nil {
			t.Errorf("the user %q is taken", name)
		}
	}
	for _, path := range []string{`/opt/a"b`, `/opt/a'b`, `/opt/a\b`} {
		var refused *ServiceError
		if _, err := systemdUnit(ServiceOptions{Executable: path}, ""); !errors.As(err, &refused) || refused.Hint() == "" {
			t.Errorf("%s: %v", path, err)
		}
	}
}

// TestSystemdReadsTheUnit has systemd itself find a program at each path: verify
// fails when what it reads is another one.
func TestSystemdReadsTheUnit(t *testing.T) {
	if _, err := exec.LookPath("systemd-analyze"); err != nil {
		t.Skip("there is no systemd-analyze here")
	}
	t.Parallel()
	runtimeDir := t.TempDir()
	verify := func(text string) error {
		path := filepath.Join(t.TempDir(), "toolsd.service")
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		cmd := exec.CommandContext(t.Context(), "systemd-analyze", "--user", "--man=no", "verify", path)
		cmd.Env = append(os.Environ(), "XDG_RUNTIME_DIR="+runtimeDir, "LC_ALL=C")
		out, err := cmd.CombinedOutput()
		if err == nil && strings.Contains(string(out), path) {
			err = errors.New("there are remarks")
		}
		if err != nil {
			return fmt.Errorf("%w: %s", err, out)
		}
		return nil
	}
	for _, name := range []string{"plain", "two words", "100% $HOME", "{{Path}}", "ü日本", "a;b#c", "%h"} {
		dir := filepath.Join(t.TempDir(), name)
		if err := os.Mkdir(dir, 0o700); err != nil {
			t.Fatal(err)
		}
		program := filepath.Join(dir, "toolsd")
		if err := os.WriteFile(program, []byte("#!/bin/sh\n"), 0o700); err != nil {
			t.Fatal(err)
		}
		for _, system := range []bool{false, true}[:map[bool]int{true: 2, false: 1}[name == "plain"]] {
			text, err := systemdUnit(ServiceOptions{Executable: program, Args: []string{"serve"}, Env: []string{"TOOLSD_DIR=" + dir}, System: system, User: "root"}, "0")
			if err != nil {
				t.Fatal(err)
			}
			if err := verify(text); err != nil {
				t.Errorf("%q, system %v: %v\n%s", name, system, err, text)
			}
		}
		if err := os.Remove(program); err != nil {
			t.Fatal(err)
		}
		if text, err := systemdUnit(ServiceOptions{Executable: program}, ""); err != nil || verify(text) == nil {
			t.Errorf("%q: systemd does not miss the program, so this test proves nothing (%v)", name, err)
		}
	}
}

// plistValue is a property list as Go values: dict, array, string, bool, int.
func plistValue(t *testing.T, d *xml.Decoder, start xml.StartElement) any {
	t.Helper()
	text := ""
	dict, array := map[string]any{}, []any{}
	key := ""
	for {
		token, err := d.Token()
		if err != nil {
			t.Fatal(err)
		}
		switch x := token.(type) {
		case xml.CharData:
			text += string(x)
		case xml.StartElement:
			v := plistValue(t, d, x)
			if x.Name.Local == "key" {
				key = v.(string)
				continue
			}
			dict[key] = v
			array = append(array, v)
		case xml.EndElement:
			switch start.Name.Local {
			case "true", "false":
				return start.Name.Local == "true"
			case "dict":
				return dict
			case "array":
				return array
			case "integer":
				n, err := strconv.Atoi(text)
				if err != nil {
					t.Fatal(err)
				}
				return n
			case "string", "key":
				return text
			case "plist":
				return array[0]
			}
			t.Fatalf("there is no <%s> in a property list", start.Name.Local)
		}
	}
}

func parseXML(t *testing.T, text string) (*xml.Decoder, xml.StartElement) {
	t.Helper()
	d := xml.NewDecoder(strings.NewReader(text))
	d.CharsetReader = func(_ string, r io.Reader) (io.Reader, error) { return r, nil } // the file is encoded where it is written
	for {
		token, err := d.Token()
		if err != nil {
			t.Fatal(err)
		}
		if start, ok := token.(xml.StartElement); ok {
			return d, start
		}
	}
}

func TestPropertyListKeepsEveryValue(t *testing.T) {
	for _, v := range hardValues {
		text, err := launchdPlist(ServiceOptions{
			Executable: "/opt/" + v + "/toolsd", Args: []string{"serve", v}, Env: []string{"TOOLSD_DIR=" + v}, Dir: "/state/" + v, System: true, User: "me",
		})
		if err != nil {
			t.Errorf("%q: %v", v, err)
			continue
		}
		if strings.Contains(text, "{{") {
			t.Errorf("%q: the list would be taken for a template:\n%s", v, text)
		}
		d, start := parseXML(t, text)
		p := plistValue(t, d, start).(map[string]any)
		words := p["ProgramArguments"].([]any)
		if len(words) != 3 || words[0] != "/opt/"+v+"/toolsd" || words[2] != v {
			t.Errorf("%q came back as %q", v, words)
		}
		if got := p["EnvironmentVariables"].(map[string]any)["TOOLSD_DIR"]; got != v {
			t.Errorf("%q came back as %q", v, got)
		}
		if p["RunAtLoad"] != true || p["KeepAlive"].(map[string]any)["SuccessfulExit"] != false || p["ProcessType"] != "Interactive" || p["UserName"] != "me" || p["Label"] != launchdLabel {
			t.Errorf("the job is %v", p)
		}
		if got := p["StandardErrorPath"]; got != "/state/"+v+"/service.log" && got != filepath.Join("/state", v, "service.log") {
			t.Errorf("its log is %q", got)
		}
	}
}

func TestLogonTaskKeepsEveryValue(t *testing.T) {
	for _, v := range hardValues {
		text, err := logonTask(ServiceOptions{Executable: `C:\Program Files\` + v + `\toolsd.exe`, Args: []string{"serve"}, Env: []string{"TOOLSD_DIR=" + v}}, `PC\me`)
		if err != nil {
			t.Errorf("%q: %v", v, err)
			continue
		}
		var task struct {
			Triggers struct {
				LogonTrigger struct{ UserId string }
			}
			Actions struct {
				Exec struct{ Command, Arguments string }
			}
		}
		d, start := parseXML(t, text)
		if err := d.DecodeElement(&task, &start); err != nil {
			t.Errorf("%q: %v", v, err)
		}
		if task.Actions.Exec.Command != `C:\Program Files\`+v+`\toolsd.exe` || task.Triggers.LogonTrigger.UserId != `PC\me` {
			t.Errorf("%q: %+v", v, task)
		}
		if got, want := windowsWords(task.Actions.Exec.Arguments), []string{"service", "run", "--env", "TOOLSD_DIR=" + v}; strings.Join(got, "\x00") != strings.Join(want, "\x00") {
			t.Errorf("%q came back as %q", want, got)
		}
	}
}

// windowsWords splits a command line as CommandLineToArgvW does.
func windowsWords(line string) []string {
	var words []string
	for i := 0; i < len(line); {
		if line[i] == ' ' {
			i++
			continue
		}
		var b strings.Builder
		quoted := false
		for i < len(line) && (quoted || line[i] != ' ') {
			slashes := 0
			for i < len(line) && line[i] == '\\' {
				slashes++
				i++
			}
			if i < len(line) && line[i] == '"' {
				b.WriteString(strings.Repeat(`\`, slashes/2))
				if slashes%2 == 1 {
					b.WriteByte('"')
				} else {
					quoted = !quoted
				}
				i++
				continue
			}
			b.WriteString(strings.Repeat(`\`, slashes))
			if i < len(line) && (quoted || line[i] != ' ') {
				b.WriteByte(line[i])
				i++
			}
		}
		words = append(words, b.String())
	}
	return words
}

func TestServiceProgram(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("paths and modes of Unix")
	}
	none := func(string) string { return "" }
	dir := t.TempDir()
	file := func(name string, mode os.FileMode) string {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, nil, mode); err != nil {
			t.Fatal(err)
		}
		return path
	}
	for _, c := range []struct{ path, why string }{
		{"toolsd", "absolute"},
		{filepath.Join(dir, "gone"), "not there"},
		{dir, "regular file"},
		{file("flat", 0o600), "cannot be executed"},
		{file("go-build123/b001/exe/toolsd", 0o700), "go run"},
		{file("toolsd", 0o700), "do not stay"},
	} {
		err := checkExecutable(c.path, none)
		var refused *ServiceError
		if !errors.As(err, &refused) || !strings.Contains(err.Error(), c.why) || refused.Hint() == "" {
			t.Errorf("%s: %v, want %q", c.path, err, c.why)
		}
	}
	if err := checkExecutable("/bin/sh", none); err != nil {
		t.Error(err)
	}
	// A link that stays leads to a program that does not.
	link := filepath.Join(dir, "link")
	if err := os.Symlink("/bin/sh", link); err != nil {
		t.Fatal(err)
	}
	if err := checkExecutable(link, none); err == nil {
		t.Error("a link in a temporary directory is taken")
	}
}

func TestStablePath(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("paths of Unix")
	}
	real, err := filepath.EvalSymlinks("/bin/sh")
	if err != nil {
		t.Fatal(err)
	}
	if filepath.Base(real) != "sh" {
		// /bin/sh is a link to dash or bash: look for it under that name.
		want := filepath.Join("/bin", filepath.Base(real))
		if got := StablePath(real, func(string) string { return "relative:/nowhere:/bin" }); got != want {
			t.Errorf("StablePath(%s) is %s, want %s", real, got, want)
		}
	}
	if got := StablePath("/usr/bin/env", func(string) string { return "" }); got != "/usr/bin/env" {
		t.Errorf("without a PATH it is %s", got)
	}
}

func FuzzSystemdQuote(f *testing.F) {
	for _, v := range hardValues {
		f.Add(v)
	}
	f.Fuzz(func(t *testing.T, v string) {
		word, err := systemdQuote(v)
		if err != nil {
			if utf8.ValidString(v) && !strings.ContainsFunc(v, func(r rune) bool { return r < ' ' || r >= 0x7f && r < 0xa0 || r == '\u2028' || r == '\u2029' }) {
				t.Errorf("%q is refused: %v", v, err)
			}
			return
		}
		if got := systemdWords(t, word); len(got) != 1 || got[0] != v {
			t.Errorf("%q came back as %q", v, got)
		}
	})
}
