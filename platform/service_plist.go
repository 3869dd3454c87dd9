package platform

import (
	"encoding/xml"
	"fmt"
	"path/filepath"
	"strings"
)

// launchdPlist is the property list of launchd for these options.
func launchdPlist(o ServiceOptions) (string, error) {
	env, err := checkEnv(o.Env)
	if err != nil {
		return "", err
	}
	for _, word := range append([]string{o.Executable, o.Dir}, o.Args...) {
		if err := oneLine(word); err != nil {
			return "", fmt.Errorf("%q: %w", word, err)
		}
	}
	var b strings.Builder
	line := func(format string, args ...any) { fmt.Fprintf(&b, format+"\n", args...) }
	text := func(s string) string { return "<string>" + xmlText(s) + "</string>" }
	line(`<?xml version="1.0" encoding="UTF-8"?>`)
	line(`<!DOCTYPE plist PUBLIC "-//Apple//DTD PLIST 1.0//EN" "http://www.apple.com/DTDs/PropertyList-1.0.dtd">`)
	line(`<plist version="1.0">`)
	line("<dict>")
	line("\t<key>Label</key>\n\t%s", text(launchdLabel))
	line("\t<key>ProgramArguments</key>\n\t<array>")
	for _, word := range append([]string{o.Executable}, o.Args...) {
		line("\t\t%s", text(word))
	}
	line("\t</array>")
	if len(env) > 0 {
		line("\t<key>EnvironmentVariables</key>\n\t<dict>")
		for _, kv := range env {
			name, value, _ := strings.Cut(kv, "=")
			line("\t\t<key>%s</key>\n\t\t%s", xmlText(name), text(value))
		}
		line("\t</dict>")
	}
	if o.System {
		name, err := checkUser(o.User)
		if err != nil {
			return "", err
		}
		line("\t<key>UserName</key>\n\t%s", text(name))
	}
	line("\t<key>RunAtLoad</key>\n\t<true/>")
	// A daemon that was asked to stop, or that found the lock taken, ends with 0 and
	// is left alone.
	line("\t<key>KeepAlive</key>\n\t<dict>\n\t\t<key>SuccessfulExit</key>\n\t\t<false/>\n\t</dict>")
	// Agents wait for it and for the servers that it starts. Background, and no type
	// at all, throttle CPU and disk; Adaptive lifts that for XPC, which it has none of
	// (launchd.plist(5)).
	line("\t<key>ProcessType</key>\n\t<string>Interactive</string>")
	line("\t<key>ExitTimeOut</key>\n\t<integer>12</integer>") // it ends its servers in at most 8 s
	if o.Dir != "" {
		log := filepath.Join(o.Dir, "service.log")
		line("\t<key>StandardOutPath</key>\n\t%s", text(log))
		line("\t<key>StandardErrorPath</key>\n\t%s", text(log))
	}
	line("</dict>")
	line("</plist>")
	return b.String(), nil
}

// launchdLabel names the job, and the file that it is in.
const launchdLabel = "com.github.toolsd"

// xmlText writes s, which is oneLine, as the text of an element. Braces are written
// as numbers, for the reason that systemdQuote gives.
func xmlText(s string) string {
	var b strings.Builder
	_ = xml.EscapeText(&b, []byte(s)) // a Builder takes everything
	return strings.NewReplacer("{", "&#123;", "}", "&#125;").Replace(b.String())
}

// logonTask is the definition of a task of Windows that starts the daemon when
// user logs in.
func logonTask(o ServiceOptions, user string) (string, error) {
	arguments := []string{}
	env, err := checkEnv(o.Env)
	if err != nil {
		return "", err
	}
	args := o.Args
	if len(env) > 0 {
		// A task has no environment of its own.
		args = []string{"service", "run"}
		for _, kv := range env {
			args = append(args, "--env", kv)
		}
	}
	for _, word := range append([]string{o.Executable, user}, args...) {
		if err := oneLine(word); err != nil {
			return "", fmt.Errorf("%q: %w", word, err)
		}
	}
	for _, arg := range args {
		arguments = append(arguments, windowsQuote(arg))
	}
	return `<?xml version="1.0" encoding="UTF-16"?>
<Task version="1.2" xmlns="http://schemas.microsoft.com/windows/2004/02/mit/task">
  <RegistrationInfo>
    <Description>toolsd, one daemon for the MCP servers of all agents</Description>
  </RegistrationInfo>
  <Triggers>
    <LogonTrigger>
      <Enabled>true</Enabled>
      <UserId>` + xmlText(user) + `</UserId>
    </LogonTrigger>
  </Triggers>
  <Principals>
    <Principal id="Author">
      <UserId>` + xmlText(user) + `</UserId>
      <LogonType>InteractiveToken</LogonType>
      <RunLevel>LeastPrivilege</RunLevel>
    </Principal>
  </Principals>
  <Settings>
    <MultipleInstancesPolicy>IgnoreNew</MultipleInstancesPolicy>
    <DisallowStartIfOnBatteries>false</DisallowStartIfOnBatteries>
    <StopIfGoingOnBatteries>false</StopIfGoingOnBatteries>
    <ExecutionTimeLimit>PT0S</ExecutionTimeLimit>
    <Hidden>true</Hidden>
    <RestartOnFailure>
      <Interval>PT1M</Interval>
      <Count>3</Count>
    </RestartOnFailure>
  </Settings>
  <Actions Context="Author">
    <Exec>
      <Command>` + xmlText(o.Executable) + `</Command>
      <Arguments>` + xmlText(strings.Join(arguments, " ")) + `</Arguments>
    </Exec>
  </Actions>
</Task>
`, nil
}

// windowsQuote writes an argument as programs of Windows split their command line:
// backslashes count double where a quote follows them, and only there.
func windowsQuote(arg string) string {
	if arg != "" && !strings.ContainsAny(arg, " \t\"") {
		return arg
	}
	var b strings.Builder
	b.WriteByte('"')
	slashes := 0
	for i := range len(arg) {
		switch arg[i] {
		case '\\':
			slashes++
		case '"':
			b.WriteString(strings.Repeat(`\`, slashes+1))
			slashes = 0
		default:
			slashes = 0
		}
		b.WriteByte(arg[i])
	}
	b.WriteString(strings.Repeat(`\`, slashes))
	b.WriteByte('"')
	return b.String()
}
