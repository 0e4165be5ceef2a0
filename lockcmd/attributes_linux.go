package lockcmd

import (
	"os"
	"strconv"
	"syscall"

	"golang.org/x/sys/unix"
)

// attributes puts the command into a process group of its own, and makes the kernel
// kill it if this program dies.
func attributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}

// adoptOrphans makes this process the parent of descendants whose parent ended, so that
// descendants finds them.
func adoptOrphans() { _ = unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) }

// descendants returns the descendants of this process that have not ended, in whatever
// process group they are.
func descendants() []int {
	names, err := readNames("/proc")
	if err != nil {
		return nil
	}
	children, ended := map[int][]int{}, map[int]bool{}
	for _, name := range names {
		if pid, err := strconv.Atoi(name); err == nil {
			state, parent := stat(pid)
			children[parent] = append(children[parent], pid)
			ended[pid] = state == "Z" || state == "X"
		}
	}
	var alive []int
	for next := children[os.Getpid()]; len(next) > 0; {
		pid := next[0]
		next = append(next[1:], children[pid]...)
		if !ended[pid] {
			alive = append(alive, pid)
		}
	}
	return alive
}

func readNames(dir string) ([]string, error) {
	d, err := os.Open(dir)
	if err != nil {
		return nil, err
	}
	defer d.Close()
	return d.Readdirnames(-1)
}
