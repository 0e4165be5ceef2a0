package provision

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	dockercontainer "github.com/moby/moby/api/types/container"
	"github.com/moby/moby/client"
)

// Processor returns the processor time that the server has used, with its children. The error matches
// errors.ErrUnsupported if it cannot be known.
func (s *Server) Processor(ctx context.Context) (time.Duration, error) {
	if s.in == nil {
		return 0, fmt.Errorf("processor time of %s, which was not started here: %w", s.Flavour, errors.ErrUnsupported)
	}
	d, err := s.in.processor(ctx)
	if err != nil {
		return 0, fmt.Errorf("processor time of %s: %w", s.Flavour, err)
	}
	return d, nil
}

func (c *container) processor(ctx context.Context) (time.Duration, error) {
	c.mu.Lock()
	tc := c.tc
	c.mu.Unlock()
	if tc == nil {
		return 0, errors.New("it does not run")
	}
	r, err := c.docker.ContainerStats(ctx, tc.GetContainerID(), client.ContainerStatsOptions{})
	if err != nil {
		return 0, err
	}
	defer r.Body.Close()
	var stats dockercontainer.StatsResponse
	if err := json.NewDecoder(r.Body).Decode(&stats); err != nil {
		return 0, err
	}
	return time.Duration(stats.CPUStats.CPUUsage.TotalUsage), nil // of a container with Linux
}

// tick is the unit of times in /proc/PID/stat.
const tick = time.Second / 100

// processor reads Linux's /proc.
func (p *process) processor(context.Context) (sum time.Duration, err error) {
	root, _ := p.current()
	if root == nil {
		return 0, errors.New("it does not run")
	}
	files, err := filepath.Glob("/proc/[0-9]*/stat")
	if err != nil || len(files) == 0 {
		return 0, fmt.Errorf("no processes in /proc: %w", errors.ErrUnsupported)
	}
	used, children := map[int]time.Duration{}, map[int][]int{}
	for _, f := range files {
		text, err := os.ReadFile(f)
		if err != nil {
			continue // it has ended
		}
		pid, _ := strconv.Atoi(filepath.Base(filepath.Dir(f)))
		_, rest, _ := strings.Cut(string(text), ") ") // after the name
		fields := strings.Fields(rest)
		if len(fields) < 15 {
			return 0, fmt.Errorf("%s: unexpected content %q", f, text)
		}
		parent, _ := strconv.Atoi(fields[1])
		children[parent] = append(children[parent], pid)
		for _, field := range fields[11:15] { // user and system, of itself and of children that have ended
			n, err := strconv.ParseInt(field, 10, 64)
			if err != nil {
				return 0, fmt.Errorf("%s: %w", f, err)
			}
			used[pid] += time.Duration(n) * tick
		}
	}
	for all := []int{root.Pid}; len(all) > 0; {
		pid := all[0]
		sum += used[pid]
		all = append(all[1:], children[pid]...)
	}
	return sum, nil
}
