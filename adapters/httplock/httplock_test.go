package httplock_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/interlock-go/lock"
	"github.com/interlock-go/lock/adapters/httplock"
	"github.com/interlock-go/lock/memlock"
)

// shop is a server whose handler the test controls.
type shop struct {
	*httptest.Server
	c      *lock.Client
	served chan context.Context // the context of each request whose handler runs
	finish chan struct{}        // ends one handler
}

func open(t *testing.T, m httplock.Middleware, opts ...lock.MutexOption) *shop {
	t.Helper()
	c, err := lock.New(memlock.New(), lock.WithLogger(nil))
	if err != nil {
		t.Fatal(err)
	}
	s := &shop{c: c, served: make(chan context.Context, 10), finish: make(chan struct{})}
	m.Mutex = func(r *http.Request) lock.Mutex {
		if key := r.URL.Query().Get("order"); key != "" {
			return c.Mutex("orders/"+key, opts...)
		}
		return nil
	}
	s.Server = httptest.NewServer(m.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.served <- r.Context()
		select {
		case <-s.finish:
			fmt.Fprint(w, "served")
		case <-r.Context().Done():
			http.Error(w, context.Cause(r.Context()).Error(), http.StatusTeapot)
		}
	})))
	t.Cleanup(func() {
		s.Close() // waits for its requests
		if err := c.Close(context.Background()); err != nil {
			t.Error(err)
		}
	})
	return s
}

// get sends a request and returns the channel of its answer.
func (s *shop) get(ctx context.Context, order string) chan string {
	out := make(chan string, 1)
	go func() {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, s.URL+"/?order="+order, nil)
		if err != nil {
			out <- err.Error()
			return
		}
		r, err := s.Client().Do(req)
		if err != nil {
			out <- err.Error()
			return
		}
		defer r.Body.Close()
		text, _ := io.ReadAll(r.Body)
		out <- fmt.Sprint(r.StatusCode, " ", r.Header.Get("Retry-After"), " ", strings.TrimSpace(string(text)))
	}()
	return out
}

// waits returns when the given number of requests wait for an order.
func (s *shop) waits(t *testing.T, order string, n int) {
	t.Helper()
	eventually(t, fmt.Sprintf("%d wait for %s", n, order), func() bool {
		info, err := s.c.Inspect(t.Context(), "orders/"+order)
		return err == nil && len(info.Waiters) == n
	})
}

func eventually(t *testing.T, what string, is func() bool) {
	t.Helper()
	for end := time.Now().Add(10 * time.Second); !is(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("not seen:", what)
		}
	}
}

func want(t *testing.T, got chan string, answer string) {
	t.Helper()
	select {
	case a := <-got:
		if !strings.HasPrefix(a, answer) {
			t.Fatalf("answer %q, want %q", a, answer)
		}
	case <-time.After(10 * time.Second):
		t.Fatalf("no answer, want %q", answer)
	}
}

func TestOneAtATime(t *testing.T) {
	t.Parallel()
	s := open(t, httplock.Middleware{Wait: time.Minute})
	first := s.get(t.Context(), "1")
	<-s.served
	second := s.get(t.Context(), "1")
	s.waits(t, "1", 1)
	other, none := s.get(t.Context(), "2"), s.get(t.Context(), "")
	<-s.served // requests with another key, or without one, do not wait
	<-s.served
	select {
	case <-s.served:
		t.Fatal("two requests of one key at a time")
	default:
	}
	for range 4 { // the second begins when the first has ended, and may end before the others
		s.finish <- struct{}{}
	}
	<-s.served
	for _, answer := range []chan string{first, second, other, none} {
		want(t, answer, "200  served")
	}
}

func TestRefused(t *testing.T) {
	t.Parallel()
	for name, wait := range map[string]time.Duration{"at once": 0, "after a while": time.Second} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := open(t, httplock.Middleware{Wait: wait})
			first := s.get(t.Context(), "1")
			<-s.served
			want(t, s.get(t.Context(), "1"), "409 1 Conflict")
			s.finish <- struct{}{}
			want(t, first, "200  served")
			want(t, s.get(t.Context(), strings.Repeat("x", 2000)), "400  Bad Request")
			if err := s.c.Close(t.Context()); err != nil {
				t.Fatal(err)
			}
			want(t, s.get(t.Context(), "1"), "503 1 Service Unavailable")
		})
	}
	own := open(t, httplock.Middleware{Refused: func(w http.ResponseWriter, r *http.Request, err error) {
		http.Error(w, fmt.Sprint(r.URL.Query().Get("order"), errors.Is(err, lock.ErrInvalid)), http.StatusTeapot)
	}}, lock.WithTTL(-1))
	want(t, own.get(t.Context(), "1"), "418  1true")
}

// The context of a request ends when its lock is lost, and, waiting or not, when its client
// disconnects.
func TestEnds(t *testing.T) {
	t.Parallel()
	s := open(t, httplock.Middleware{Wait: time.Minute})
	first := s.get(t.Context(), "1")
	ctx := <-s.served
	if _, err := s.c.Break(t.Context(), "orders/1"); err != nil {
		t.Fatal(err)
	}
	want(t, first, "418  lock: hold")
	if !errors.Is(context.Cause(ctx), lock.ErrLost) {
		t.Fatal(context.Cause(ctx))
	}

	gone, leave := context.WithCancel(t.Context())
	s.get(gone, "1")
	ctx = <-s.served
	waiting, leaveToo := context.WithCancel(t.Context())
	s.get(waiting, "1")
	s.waits(t, "1", 1)
	leaveToo()
	s.waits(t, "1", 0)
	leave()
	<-ctx.Done()
	if errors.Is(context.Cause(ctx), lock.ErrLost) {
		t.Fatal(context.Cause(ctx))
	}
	free := func() bool {
		info, err := s.c.Inspect(t.Context(), "orders/1")
		return err == nil && info.Holder == nil
	}
	eventually(t, "the lock is free", free)
}

// If a handler panics, the lock is released and the panic reaches the server.
func TestPanic(t *testing.T) {
	t.Parallel()
	c, err := lock.New(memlock.New(), lock.WithLogger(nil))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close(context.Background())
	m := httplock.Middleware{Mutex: func(*http.Request) lock.Mutex { return c.Mutex("k") }}
	h := m.Handler(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }))
	for range 2 {
		func() {
			defer func() {
				if p := recover(); p != http.ErrAbortHandler {
					t.Fatalf("panic %v", p)
				}
			}()
			h.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest(http.MethodGet, "/", nil))
		}()
	}
}
