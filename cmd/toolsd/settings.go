package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/toolsd/toolsd/ipc"
	"github.com/toolsd/toolsd/platform"
	"github.com/toolsd/toolsd/watcher"
	"github.com/toolsd/toolsd/watcher/settings"
)

// settingList is the answer of `toolsd settings`.
type settingList struct {
	Settings []settings.Value `json:"settings"`
}

func newSettingsCommand(a *app) *cobra.Command {
	return &cobra.Command{
		Use:   "settings [key [value]]",
		Short: "Show the settings and where each comes from, or set one",
		Long: `Show the settings and where each comes from: a default, the managed file, your
config.json, the environment. With a value, set one in config.json; its comments
and order stay. An edit holds for agents that start after it.`,
		Example: `  toolsd settings
  toolsd settings toolSearch.minPct
  toolsd settings toolSearch.maxResults 8
  toolsd settings pinned kicad::create_project,kicad::open_project`,
		Args: takes(0, 2, "a key and a value at most"),
		ValidArgsFunction: func(_ *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
			if len(args) > 0 {
				return nil, cobra.ShellCompDirectiveNoFileComp
			}
			var keys []string
			_, values, _ := settings.Load(settings.File{}, settings.File{}, func(string) string { return "" })
			for _, v := range values {
				keys = append(keys, v.Key)
			}
			return keys, cobra.ShellCompDirectiveNoFileComp
		},
		RunE: func(_ *cobra.Command, args []string) error {
			dirs, err := platform.FindDirs(a.getenv)
			if err != nil {
				return err
			}
			managed, err := readSettings(dirs.ManagedConfig)
			if err != nil {
				return err
			}
			user, err := readSettings(dirs.ConfigFile)
			if err != nil {
				return err
			}
			if len(args) == 2 {
				if user, err = setSetting(dirs, managed, user, a.getenv, args[0], args[1]); err != nil {
					return err
				}
			}
			_, values, problems := settings.Load(managed, user, a.getenv)
			if len(args) > 0 {
				v, err := settings.Find(values, args[0])
				if err != nil {
					return settingError(err, user.Path)
				}
				values = []settings.Value{v}
			}
			a.print(settingList{values}, func(s *screen) { showSettings(s, values) })
			a.afterSettings(args, values, user.Path, problems)
			return nil
		},
	}
}

func showSettings(s *screen, values []settings.Value) {
	var rows [][]cell
	for _, v := range values {
		origin := v.Origin
		if v.Locked {
			origin += ", locked"
		}
		text, err := json.Marshal(v.Value)
		if err != nil {
			text = []byte("?")
		}
		style := ""
		if v.Origin == settings.FromDefault {
			style = dim
		}
		rows = append(rows, []cell{{v.Key, cyan}, {origin, style}, plain(string(text))})
	}
	s.table([]string{"setting", "origin", "value"}, rows)
}

func (a *app) afterSettings(args []string, values []settings.Value, path string, problems []ipc.Problem) {
	if a.json {
		return
	}
	if len(problems) > 0 && len(args) == 0 {
		showProblems(a.err, problems)
	}
	switch {
	case len(args) == 0:
		a.hint("`toolsd settings <key> <value>` writes to %s", home(path))
	case len(args) == 2 && values[0].Origin == settings.FromEnvironment:
		a.hint("it was written, but a variable of the environment overrides it")
	case len(args) == 2 && slices.Contains([]string{"files", "clients", "trust"}, group(args[0])):
		a.hint("it takes effect at once; `toolsd servers` shows the servers")
	case len(args) == 2:
		a.hint("it holds for agents that start from now on")
	}
}

// group is the first part of a setting's name.
func group(key string) string {
	first, _, _ := strings.Cut(key, ".")
	return first
}

func readSettings(path string) (settings.File, error) {
	data, err := watcher.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, fs.ErrPermission) && path == "" {
		err = nil
	}
	if err != nil {
		if e, is := errors.AsType[*fs.PathError](err); is {
			err = e.Err
		}
		return settings.File{}, fmt.Errorf("reading settings from %s: %w", path, err)
	}
	return settings.File{Path: path, Data: data}, nil
}

// setSetting writes one setting into the user's file.
func setSetting(dirs platform.Dirs, managed, user settings.File, getenv func(string) string, key, value string) (settings.File, error) {
	now, _, _ := settings.Load(managed, user, getenv)
	data, err := settings.Set(user.Data, key, value, now.Locked...)
	if err != nil {
		return user, settingError(err, user.Path)
	}
	if err := os.MkdirAll(dirs.Config, 0o700); err != nil {
		return user, fmt.Errorf("setting %s: %w", key, err)
	}
	// A config.json that is a link into a collection of dotfiles stays one.
	path, mode := user.Path, fs.FileMode(0o600)
	if target, err := filepath.EvalSymlinks(path); err == nil {
		path = target
	}
	if info, err := os.Stat(path); err == nil {
		mode = info.Mode().Perm()
	}
	if err := platform.WriteFileAtomic(path, data, mode); err != nil {
		return user, fmt.Errorf("setting %s: %w", key, err)
	}
	user.Data = data
	return user, nil
}

func settingError(err error, path string) error {
	if e, ok := errors.AsType[*settings.KeyError](err); ok {
		return ipc.Errorf(ipc.CodeUsage, "%v", e).WithHint("%s", e.Hint)
	}
	if e, ok := errors.AsType[*settings.ValueError](err); ok {
		return ipc.Errorf(ipc.CodeUsage, "%v", e)
	}
	if e, ok := errors.AsType[*settings.LockedError](err); ok {
		return ipc.Errorf(ipc.CodeLocked, "%v", e).WithHint("`toolsd settings %s` shows its value; only who keeps the managed file can change it", e.Key)
	}
	if e, ok := errors.AsType[*settings.SyntaxError](err); ok {
		return ipc.Errorf(ipc.CodeUsage, "%s: %v", path, e).WithHint("nothing was changed; mend the file first")
	}
	return err
}
