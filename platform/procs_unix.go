//go:build unix

package platform

// proc is one line of the process table.
type proc struct {
	pid, ppid, pgid, sid int
	uid                  int
	start                uint64 // when it began, in a unit of the system's; with the pid an identity
	zombie               bool   // ended, not yet reaped: nothing left to kill
}

// descendants are the processes of table below the roots, without the roots.
func descendants(table []proc, roots ...int) []proc {
	children := make(map[int][]int, len(table))
	for i, p := range table {
		children[p.ppid] = append(children[p.ppid], i)
	}
	seen := make(map[int]bool, len(roots))
	queue := append([]int(nil), roots...)
	for _, r := range roots {
		seen[r] = true
	}
	var found []proc
	for len(queue) > 0 {
		parent := queue[0]
		queue = queue[1:]
		for _, i := range children[parent] {
			if p := table[i]; !seen[p.pid] {
				seen[p.pid] = true
				found = append(found, p)
				queue = append(queue, p.pid)
			}
		}
	}
	return found
}
