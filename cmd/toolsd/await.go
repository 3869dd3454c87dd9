package main

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/toolsd/toolsd/index/tool"
	"github.com/toolsd/toolsd/ipc"
)

// firstStart is how long a verb waits for a server that it names and that was
// never indexed: as long as the daemon lets a first start take, in which npx or
// docker may fetch a whole program.
const firstStart = time.Minute

// whenListed runs ask, and once more when what it asked about belongs to a
// server that has not listed its tools yet. The daemon knows such a tool's name
// only then, so the waiting is the verb's, as it is for a search.
func (a *app) whenListed(ctx context.Context, client *ipc.Client, dir string, ids []string, limit time.Duration, ask func() error) error {
	err := ask()
	e, ok := errors.AsType[*ipc.Error](err)
	if !ok || e.Code != ipc.CodeServerDown && e.Code != ipc.CodeNotFound {
		return err
	}
	end := time.After(limit)
	ticker := time.NewTicker(searchAgain)
	defer ticker.Stop()
	for said := false; ; said = true {
		status, statusErr := client.Status(ctx, ipc.StatusRequest{CWD: dir})
		if statusErr != nil {
			return err
		}
		waiting := unlisted(status.Servers, ids)
		if len(waiting) == 0 && !said {
			return err
		}
		if len(waiting) == 0 {
			return ask()
		}
		if !said {
			a.say("waiting for %s to list its tools (up to %v)", strings.Join(waiting, ", "), limit)
		}
		select {
		case <-ticker.C:
		case <-end:
			return ask()
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// unlisted are the servers that are starting for the first time and may have one
// of the tools.
func unlisted(servers []ipc.ServerInfo, ids []string) []string {
	var names []string
	for _, s := range servers {
		if s.State != ipc.StateStarting || s.Tools > 0 {
			continue
		}
		for _, id := range ids {
			if full, ok := tool.ParseID(id); !ok || full.Server == s.Name {
				names = append(names, s.Name)
				break
			}
		}
	}
	return names
}
