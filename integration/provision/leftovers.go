package provision

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"syscall"

	"github.com/containerd/errdefs"
	"github.com/moby/moby/client"
)

// owner names this process for labelOwner: the space in which its pid means something, the pid, and when it started.
func owner() string {
	pid := os.Getpid()
	return fmt.Sprintf("%s/%d/%s", pidSpace(), pid, startOf(pid))
}

func pidSpace() string {
	boot, _ := os.ReadFile("/proc/sys/kernel/random/boot_id")
	ns, _ := os.Readlink("/proc/self/ns/pid")
	host, _ := os.Hostname()
	return host + "," + strings.TrimSpace(string(boot)) + "," + ns
}

// startOf distinguishes a process from a later one with the same pid; it is empty where there is no /proc, and "ended" for a
// process that only waits to be reaped.
func startOf(pid int) string {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return ""
	}
	// The command's name may hold spaces; what follows its closing bracket are fields 3 and on, of which 22 is the start.
	_, rest, _ := strings.Cut(string(stat), ") ")
	fields := strings.Fields(rest)
	switch {
	case len(fields) < 20:
		return ""
	case fields[0] == "Z":
		return "ended"
	default:
		return fields[19]
	}
}

// abandoned reports whether label names a process of this machine that has ended. In doubt it says no.
func abandoned(label string) bool {
	space, process, ok := strings.Cut(label, "/")
	if !ok || space != pidSpace() {
		return false
	}
	number, start, _ := strings.Cut(process, "/")
	pid, err := strconv.Atoi(number)
	if err != nil || pid <= 0 {
		return false
	}
	if errors.Is(syscall.Kill(pid, 0), syscall.ESRCH) {
		return true
	}
	now := startOf(pid)
	return start != "" && now != "" && now != start
}

// removeLeftovers ends the containers of test binaries that were killed before they could.
func removeLeftovers(ctx context.Context, docker *client.Client) error {
	list, err := docker.ContainerList(ctx, client.ContainerListOptions{
		All: true, Filters: make(client.Filters).Add("label", labelOwner),
	})
	if err != nil {
		return err
	}
	for _, c := range list.Items {
		if !abandoned(c.Labels[labelOwner]) {
			continue
		}
		_, err := docker.ContainerRemove(ctx, c.ID, client.ContainerRemoveOptions{Force: true, RemoveVolumes: true})
		// Another test binary may be clearing up at the same time.
		if err != nil && !errdefs.IsNotFound(err) && !errdefs.IsConflict(err) {
			return err
		}
	}
	return nil
}
