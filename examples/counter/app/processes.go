package app

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

// process is a worker, as the program that starts it controls it.
type process struct {
	in   io.Writer
	out  *bufio.Reader
	wait func() error // waits for its end
}

// processes runs the workers, which begin at the same time, and returns how many times
// they report to have changed the number.
func processes(ctx context.Context, s settings) (changed int, err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel() // kills the remaining processes after an error
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
			return 0, fmt.Errorf("a worker reported %q", line)
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

// rounds waits for all workers at each step: before the first increment and, with
// Lockstep, after each read and each write.
func rounds(all []*process, s settings) error {
	steps := []string{"ready"}
	if s.Lockstep {
		for range s.Each {
			steps = append(steps, "read", "written")
		}
	}
	for _, step := range steps {
		for _, p := range all {
			line, err := p.next()
			if err != nil {
				return err
			}
			if line != step {
				return fmt.Errorf("a worker reported %q instead of %q", line, step)
			}
		}
		if err := release(all); err != nil {
			return err
		}
	}
	return nil
}

// release lets all workers continue.
func release(all []*process) error {
	for _, p := range all {
		if _, err := io.WriteString(p.in, "continue\n"); err != nil {
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

// inProcess reports whether the lock excludes only goroutines of this process.
func (s settings) inProcess() bool { return strings.HasPrefix(s.Lock.URL, "mem:") }

// startGoroutine starts a worker as a goroutine.
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
