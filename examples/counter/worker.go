package main

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"time"

	"github.com/interlock-go/lock"
)

// workerVariable is set, to the settings, in the environment of the processes that
// an experiment starts.
const workerVariable = "COUNTER_WORKER"

// worker is one of the processes. It says "ready", "read" and "done", a line each,
// and each time waits for a line before it goes on.
type worker struct {
	settings
	in     *bufio.Reader
	out    io.Writer
	number store
}

func work(ctx context.Context, s settings, in io.Reader, out io.Writer) error {
	w := worker{settings: s, in: bufio.NewReader(in), out: out}
	var err error
	if w.number, err = openStore(w.Store); err != nil {
		return err
	}
	defer w.number.Close()

	guarded := func(ctx context.Context, step func(context.Context) error) error { return step(ctx) }
	if w.Lock.URL != "" {
		c, err := lock.OpenConfig(ctx, w.Lock)
		if err != nil {
			return err
		}
		defer c.Close(ctx)
		m := c.Mutex("counter")
		guarded = func(ctx context.Context, step func(context.Context) error) error { return lock.Do(ctx, m, step) }
	}

	if err := w.meet("ready"); err != nil {
		return err
	}
	done := 0
	for range w.Each {
		err := guarded(ctx, func(ctx context.Context) error {
			changed, err := w.step(ctx)
			if changed {
				done++
			}
			return err
		})
		if err != nil {
			return err
		}
	}
	return w.meet(fmt.Sprintf("done %d", done))
}

// step reads the number, thinks, and writes it: right only if nobody else does so
// at the same time.
func (w *worker) step(ctx context.Context) (changed bool, err error) {
	n, err := w.number.Read(ctx)
	if err != nil {
		return false, err
	}
	if w.Lockstep {
		if err := w.meet("read"); err != nil {
			return false, err
		}
	}
	select {
	case <-time.After(w.Pause):
	case <-ctx.Done(): // the lock is lost: writing now could undo what its next holder did
		return false, context.Cause(ctx)
	}
	next := n + 1
	if w.Oversell {
		if next = n - order; next < 0 {
			return false, nil
		}
	}
	if err := w.number.Write(ctx, next); err != nil {
		return false, err
	}
	if w.Lockstep {
		return true, w.meet("written")
	}
	return true, nil
}

// meet says where this process is, and waits until it may go on.
func (w *worker) meet(where string) error {
	if _, err := fmt.Fprintln(w.out, where); err != nil {
		return err
	}
	_, err := w.in.ReadString('\n')
	return err
}
