package daemon

import (
	"context"
	"slices"
	"time"

	"github.com/toolsd/toolsd/daemon/trust"
	"github.com/toolsd/toolsd/index/tool"
	"github.com/toolsd/toolsd/ipc"
	"github.com/toolsd/toolsd/platform"
	"github.com/toolsd/toolsd/watcher/clientconfig"
)

// trustRead bounds how long a list of what would run waits, after a start, for the
// login shell, whose start-up files may hang. Then the list says what is not found.
const trustRead = 3 * time.Second

// Trust lists what a person decides about, approves or revokes. Only here does
// the definition of a pending server show. Nothing in the shim leads here.
func (d *Daemon) Trust(ctx context.Context, r ipc.TrustRequest) (*ipc.TrustList, error) {
	v := d.viewFor(ctx, r.CWD)
	if r.Action == "" || r.Action == ipc.TrustShow {
		// What would run is found with the login shell's PATH and variables.
		_ = d.awaitServers(ctx, trustRead)
		v = d.world.Load().from(r.CWD)
		return d.trustList(v, r.Name)
	}
	if r.Action == ipc.TrustApprove && len(r.Fingerprints) > 0 {
		return d.approve(ctx, r.CWD, r.Fingerprints)
	}
	if r.Name == "" {
		return nil, ipc.Errorf(ipc.CodeUsage, "no server is named").WithHint("`toolsd trust list` shows them")
	}
	s := v.server(r.Name)
	if s == nil {
		if owner, name := v.serverOf(r.Name); owner != nil && r.Action == ipc.TrustApprove {
			return d.trustTool(v, owner, name, tool.Hash(r.Fingerprint))
		}
		return nil, v.noSuchServer(r.Name)
	}
	switch r.Action {
	case ipc.TrustApprove:
		if r.Fingerprint == "" {
			return nil, ipc.Errorf(ipc.CodeUsage, "approving %s needs the fingerprint that was shown", s.Name).WithHint("use `toolsd trust %s`", s.Name)
		}
		return d.approve(ctx, r.CWD, map[string]string{s.Name: r.Fingerprint})
	case ipc.TrustRevoke:
		err := d.trust.Revoke(trust.Subject(s.Key))
		d.reconcileNow(ctx)
		if err != nil {
			return nil, notKept("that "+s.Name+" must not run", err)
		}
		return d.trustList(d.world.Load().from(r.CWD), s.Name)
	}
	return nil, ipc.Errorf(ipc.CodeUsage, "there is no action %q", r.Action).WithHint("the actions are list, approve and revoke")
}

// approve approves servers that a person was shown, all or none.
func (d *Daemon) approve(ctx context.Context, cwd string, shown map[string]string) (*ipc.TrustList, error) {
	v := d.world.Load().from(cwd)
	var list []trust.Approval
	for name, fingerprint := range shown {
		s := v.server(name)
		if s == nil {
			return nil, v.noSuchServer(name)
		}
		now, details := d.fingerprints.get(s.Server)
		if details.Unfit != "" {
			return nil, ipc.Errorf(ipc.CodeNeedsTrust, "server %s cannot be approved: %s", s.Name, details.Unfit)
		}
		if trust.Fingerprint(fingerprint) != now {
			return nil, ipc.Errorf(ipc.CodeNeedsTrust, "server %s changed after it was shown; nothing was approved", s.Name).WithHint("look at it again with `toolsd trust %s`", s.Name)
		}
		list = append(list, trust.Approval{Subject: trust.Subject(s.Key), Fingerprint: now, Details: details})
	}
	if err := d.trust.Approve(list, !d.othersWait(list)); err != nil {
		return nil, notKept("the approval", err)
	}
	d.reconcileNow(ctx)
	v = d.world.Load().from(cwd)
	out := &ipc.TrustList{Servers: []ipc.TrustInfo{}}
	for _, s := range v.list() {
		if _, ok := shown[s.Name]; ok {
			out.Servers = append(out.Servers, d.trustInfo(v, s))
		}
	}
	return out, nil
}

// othersWait reports whether servers of the user's own wait, besides those of the
// list, because what was taken back is lost: those were not answered for, whoever
// was shown them.
func (d *Daemon) othersWait(list []trust.Approval) bool {
	return slices.ContainsFunc(d.world.Load().servers, func(s *server) bool {
		subject := trust.Subject(s.Key)
		return s.Source.Scope == clientconfig.User && d.trust.Barred(subject) && !d.trust.Revoked(subject) &&
			!slices.ContainsFunc(list, func(a trust.Approval) bool { return a.Subject == subject })
	})
}

// notKept is the error of a decision that the disk does not have.
func notKept(what string, err error) error {
	return ipc.Errorf(ipc.CodeInternal, "keeping %s: %v", what, err).WithHint("free some space or mend the state directory, then try again")
}

// trustTool approves the definition of a held tool that a person was shown.
func (d *Daemon) trustTool(v view, s *server, name string, shown tool.Hash) (*ipc.TrustList, error) {
	if s.gate == pending {
		return nil, needsTrust(s)
	}
	t := d.listedTool(s, name)
	if t == nil {
		return nil, ipc.Errorf(ipc.CodeNotFound, "server %s has no tool %q", s.Name, tool.CleanLine(name)).WithHint("`toolsd trust %s` shows what waits", s.Name)
	}
	look := "look at it with `toolsd trust " + t.ID.String() + "`"
	switch shown {
	case t.Hash:
	case "":
		return nil, ipc.Errorf(ipc.CodeUsage, "approving %s needs the hash that was shown", t.ID).WithHint("%s", look)
	default:
		return nil, ipc.Errorf(ipc.CodeNeedsTrust, "the definition of %s changed after it was shown; nothing was approved", t.ID).WithHint("%s", look)
	}
	if err := d.trust.ApproveTool(trust.Subject(s.Key), t); err != nil {
		return nil, notKept("the approval of "+t.ID.String(), err)
	}
	d.wakeSessions()
	return d.trustList(v, s.Name)
}

func (d *Daemon) trustList(v view, name string) (*ipc.TrustList, error) {
	out := &ipc.TrustList{Servers: []ipc.TrustInfo{}}
	for _, s := range v.list() {
		if name == "" || v.server(name) == s {
			out.Servers = append(out.Servers, d.trustInfo(v, s))
		}
	}
	if name != "" && len(out.Servers) == 0 {
		if owner, name := v.serverOf(name); owner != nil {
			info := d.trustInfo(v, owner)
			if t := d.listedTool(owner, name); t != nil && slices.Contains(info.Held, t.ID.String()) {
				info.HeldTool = &ipc.HeldTool{
					ToolID: t.ID.String(), Hash: t.Hash, Change: string(d.trust.Changed(trust.Subject(owner.Key), t)),
					Changes: d.changes(owner.Key, t), Definition: t.Raw,
				}
			}
			out.Servers = append(out.Servers, info)
			return out, nil
		}
		return nil, v.noSuchServer(name)
	}
	return out, nil
}

func (d *Daemon) trustInfo(v view, s *server) ipc.TrustInfo {
	subject := trust.Subject(s.Key)
	fingerprint, details := d.fingerprints.get(s.Server)
	info := ipc.TrustInfo{
		Name: s.Name, Scope: string(s.Source.Scope), Source: s.Source.File, Fingerprint: string(fingerprint), State: "auto",
	}
	switch {
	case s.Rejected:
		info.State = "rejected"
	case s.gate == pending && d.trust.Revoked(subject):
		info.State = "revoked"
	case s.gate == pending:
		info.State = "pending"
	case s.Source.Scope != clientconfig.User, d.trust.Approved(subject, fingerprint):
		info.State = "approved"
	}
	shown := trust.Describe(s.Written, s.Server.Server, s.Source.Root, func(name string) (string, error) { return d.lookPath(name, s.Dir) })
	info.Binary, info.Argv, info.URL, info.CWD = shown.Binary, shown.Argv, shown.URL, shown.CWD
	info.Env, info.EnvFile, info.Headers = shown.Env, shown.EnvFile, shown.Headers
	info.Unusual = shown.Unusual
	if shown.Missing != "" {
		info.Unusual = append(info.Unusual, shown.Missing)
	}
	if last, ok := d.trust.Last(subject); ok && info.State == "pending" {
		info.Changes = last.Changes(details)
	}
	info.Held = d.heldTools(v, s)
	if v.gateOf(s) == open {
		others := d.otherNames(v, s.Key)
		listing, _ := d.index.Snapshot().Listing(s.Key)
		for _, t := range listing.Tools {
			if !s.Passes(t.Name) {
				continue
			}
			for _, w := range trust.LintTool(t, others) {
				info.Flagged = append(info.Flagged, t.ID.String()+" "+w)
			}
		}
	}
	return info
}

// listedTool returns a tool that a server listed, whether or not anybody may see
// it, or nil.
func (d *Daemon) listedTool(s *server, name string) *tool.Tool {
	listing, _ := d.index.Snapshot().Listing(s.Key)
	for _, t := range listing.Tools {
		if t.Name == name {
			return t
		}
	}
	return nil
}

func (d *Daemon) lookPath(name, dir string) (string, error) {
	e := d.environ.value.Load()
	if e == nil {
		e = &platform.Environ{}
	}
	return e.LookPath(name, dir)
}
