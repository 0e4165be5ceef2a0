package provision

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"testing"
	"time"
)

// Server is a real server on loopback (or wherever a URL of the environment points). Its methods may be called from
// any goroutine, one at a time.
type Server struct {
	Flavour string // such as "redis-8"
	Version string // as the server says it
	Source  string // how it came: "container redis:8", "binary /usr/bin/redis-server", "LOCK_TEST_REDIS_8_URL"

	kind    kind
	options Options
	addr    string
	given   string // the URL from the environment, if that is where the server came from
	shared  bool
	in      instance // nil for a given server
	port    *reservedPort
	dir     string // removed with the server

	mu      sync.Mutex
	removed bool
}

// instance is a server as something to run: a process or a container. After kill or stop, start runs it again on
// the same port with the files that it left.
type instance interface {
	start(ctx context.Context) error
	stop(ctx context.Context) error // orderly, and by force when ctx ends
	kill(ctx context.Context) error // at once, no last words; returns when it is gone
	pause(ctx context.Context) error
	resume(ctx context.Context) error
	running() bool
	remove(ctx context.Context) error
	processor(ctx context.Context) (time.Duration, error)
	log() string // the last of what it printed
}

// URL returns what a client opens, with credentials if there are any.
func (s *Server) URL() string {
	if s.given != "" {
		return s.given
	}
	return s.kind.url(s.addr, s.options)
}

// Addr returns host:port.
func (s *Server) Addr() string { return s.addr }

// Pause freezes the server, with connections open and requests unanswered, until [Server.Resume].
// It returns when the server is frozen.
func (s *Server) Pause() error {
	return s.control("pause", func(ctx context.Context) error { return s.in.pause(ctx) })
}

// Resume lets a paused server go on.
func (s *Server) Resume() error {
	return s.control("resume", func(ctx context.Context) error { return s.in.resume(ctx) })
}

// Kill ends the server at once, as SIGKILL or a power cut would, and returns when it is gone.
func (s *Server) Kill() error {
	return s.control("kill", func(ctx context.Context) error { return s.in.kill(ctx) })
}

// Stop ends the server in an orderly way and returns when it is gone.
func (s *Server) Stop() error {
	return s.control("stop", func(ctx context.Context) error { return s.in.stop(ctx) })
}

// Restart stops the server if it runs, starts it again on the same address with the files that it left, and returns
// when it answers. Data survives only if Options.Args ask for it, such as "--appendonly", "yes".
func (s *Server) Restart(ctx context.Context) error {
	if err := s.mine("restart"); err != nil {
		return err
	}
	if s.in.running() {
		if err := s.in.stop(ctx); err != nil {
			return fmt.Errorf("restart %s: %w", s.Flavour, err)
		}
	}
	if err := s.in.start(ctx); err != nil {
		return fmt.Errorf("restart %s: %w", s.Flavour, err)
	}
	return s.WaitReady(ctx)
}

// WaitReady returns when the server answers, or why it does not when ctx ends or the server does.
func (s *Server) WaitReady(ctx context.Context) error {
	err := until(ctx, func(ctx context.Context) error {
		version, err := s.kind.probe(ctx, s.URL(), s.options)
		if err == nil {
			s.Version = version
			return nil
		}
		if s.in != nil && !s.in.running() {
			return final{errors.New("the server ended")}
		}
		return err
	})
	if err == nil {
		return nil
	}
	err = fmt.Errorf("%s at %s is not ready: %w", s.Flavour, s.addr, err)
	if s.in != nil {
		err = fmt.Errorf("%w; its log ends:\n%s", err, s.in.log())
	}
	return err
}

func (s *Server) mine(verb string) error {
	switch {
	case s.in == nil:
		return fmt.Errorf("%s %s: it was given by %s and is not ours to control", verb, s.Flavour, s.Source)
	case s.shared:
		return fmt.Errorf("%s %s: other tests share it; start a private one with NewRedis", verb, s.Flavour)
	}
	return nil
}

func (s *Server) control(verb string, do func(context.Context) error) error {
	if err := s.mine(verb); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), startTimeout)
	defer cancel()
	if err := do(ctx); err != nil {
		return fmt.Errorf("%s %s (%s): %w", verb, s.Flavour, s.Source, err)
	}
	return nil
}

// endWith removes the server when the test is over. If the test failed and the server had ended before, endWith logs
// the end of its output.
func (s *Server) endWith(t testing.TB) {
	t.Cleanup(func() {
		if t.Failed() && s.in != nil && !s.in.running() {
			t.Logf("%s does not run any more; its log ends:\n%s", s.Flavour, s.in.log())
		}
		if err := s.remove(); err != nil {
			t.Errorf("end %s: %v", s.Flavour, err)
		}
	})
}

// remove ends the server and everything it left. It is idempotent.
func (s *Server) remove() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.removed || s.in == nil {
		return nil
	}
	s.removed = true
	ctx, cancel := context.WithTimeout(context.Background(), startTimeout)
	defer cancel()
	err := s.in.remove(ctx)
	s.port.release()
	if s.dir != "" {
		err = errors.Join(err, os.RemoveAll(s.dir))
	}
	unregister(s)
	return err
}

// final wraps an error that another attempt cannot change.
type final struct{ error }

func (f final) Unwrap() error { return f.error }

// until tries do until it succeeds, says that it never will, or ctx ends; the last error is returned.
func until(ctx context.Context, do func(context.Context) error) error {
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		err := do(ctx)
		if err == nil || errors.As(err, &final{}) {
			return err
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%w: %w", ctx.Err(), err)
		case <-tick.C:
		}
	}
}
