package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
)

// process is a worker as seen from outside.
type process struct {
	in   io.Writer
	out  *bufio.Reader
	wait func() error // for its end
}

// processes starts the workers, lets them begin together, and returns how many
// times, by their own account, they changed the number.
func processes(ctx context.Context, s settings) (changed int, err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel() // kills whoever is left after an error
	start := startProcess
	if s.inProcess() {
		start = startGoroutine
	}
	all := make([]*process, s.Processes)
	for i := range all {
		if all[i], err = start(ctx, s); err != nil {
			return 0, err
		}
	}
	if err := rounds(all, s); err != nil {
		return 0, err
	}
	for _, p := range all {
		line, err := p.next()
		if err != nil {
			return 0, err
		}
		var n int
		if _, err := fmt.Sscanf(line, "done %d", &n); err != nil {
			return 0, fmt.Errorf("a worker said %q", line)
		}
		changed += n
	}
	if err := release(all); err != nil {
		return 0, err
	}
	for _, p := range all {
		err = errors.Join(err, p.wait())
	}
	return changed, err
}

// rounds lets the workers begin together and, in lockstep, write only when all
// have read.
func rounds(all []*process, s settings) error {
	meetings := []string{"ready"}
	if s.Lockstep {
		for range s.Each {
			meetings = append(meetings, "read", "written")
		}
	}
	for _, where := range meetings {
		for _, p := range all {
			line, err := p.next()
			if err != nil {
				return err
			}
			if line != where {
				return fmt.Errorf("a worker said %q instead of %q", line, where)
			}
		}
		if err := release(all); err != nil {
			return err
		}
	}
	return nil
}

// release lets all workers go on from where they met.
func release(all []*process) error {
	for _, p := range all {
		if _, err := io.WriteString(p.in, "go on\n"); err != nil {
			return err
		}
	}
	return nil
}

func startProcess(ctx context.Context, s settings) (*process, error) {
	text, err := json.Marshal(s)
	if err != nil {
		return nil, err
	}
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	cmd := exec.CommandContext(ctx, self)
	cmd.Env = append(os.Environ(), workerVariable+"="+string(text))
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	return &process{in, bufio.NewReader(out), cmd.Wait}, cmd.Start()
}

// inProcess tells whether nobody outside this process could take the lock.
func (s settings) inProcess() bool { return strings.HasPrefix(s.Lock.URL, "mem:") }

// startGoroutine starts a worker in this process.
func startGoroutine(ctx context.Context, s settings) (*process, error) {
	inR, inW := io.Pipe()
	outR, outW := io.Pipe()
	stop := context.AfterFunc(ctx, func() {
		inW.CloseWithError(ctx.Err())
		outR.CloseWithError(ctx.Err())
	})
	ended := make(chan error, 1)
	go func() {
		err := work(ctx, s, inR, outW)
		outW.CloseWithError(err)
		ended <- err
		stop()
	}()
	return &process{inW, bufio.NewReader(outR), func() error { return <-ended }}, nil
}

func (p *process) next() (string, error) {
	line, err := p.out.ReadString('\n')
	if err != nil {
		return "", fmt.Errorf("a worker ended early: %w", err)
	}
	return strings.TrimSpace(line), nil
}
