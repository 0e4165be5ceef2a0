//go:build unix

package main

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"syscall"
	"testing"

	"github.com/interlock-go/lock"
	"github.com/interlock-go/lock/internal/cmdtest"
	"github.com/interlock-go/lock/lockcmd"
)

func TestDemo(t *testing.T) {
	t.Parallel()
	all := append([]*cmdtest.Service{{Name: "mem"}, {Name: "mem", URL: "mem:"}}, cmdtest.Services(t)...)
	for _, p := range all {
		t.Run(p.Name, func(t *testing.T) {
			t.Parallel()
			args := []string{"demo", "--workers", "4", "--each", "5"}
			if p.URL != "" {
				args = append(args, "--url", p.URL)
			}
			// the demonstration does not read the environment
			elsewhere := []string{"LOCK_URL=redis://127.0.0.1:1/0"}
			code, out, stderr := cmdtest.Exec(t, elsewhere, append(args, "-o", "json")...)
			var d demoReport
			if err := json.Unmarshal([]byte(out), &d); err != nil || code != 0 || stderr != "" {
				t.Fatalf("exit code %d, %v, stdout %q, stderr %q", code, err, out, stderr)
			}
			if d.Backend != p.Name || d.Failed || len(d.Counter) != 2 || len(d.Stock) != 2 || d.Fencing == nil {
				t.Fatal(out)
			}
			bare, locked := d.Counter[0], d.Counter[1]
			if bare.Locked || bare.Made != 20 || bare.Lost != 20-bare.Says || bare.Lost < 3 { // all workers read the same at first
				t.Errorf("without a lock: %+v", bare)
			}
			locked.Took = 0
			if want := (counterResult{Made: 20, Says: 20, Locked: true}); locked != want {
				t.Errorf("with a lock: %+v", locked)
			}
			if want := (stockResult{Sold: 120, Says: 40, Oversold: 20}); d.Stock[0] != want {
				t.Errorf("without a lock: %+v", d.Stock[0])
			}
			if want := (stockResult{Sold: 60, Says: 40, Refused: 1, Locked: true}); d.Stock[1] != want {
				t.Errorf("with a lock: %+v", d.Stock[1])
			}
			if w := d.Fencing; w.Stopped == 0 || w.Successor <= w.Stopped || w.Unchecked != w.Stopped || w.Checked != w.Successor || !strings.Contains(w.Refusal, "stale") {
				t.Errorf("%+v", w)
			}
			if p.URL != "" && p.URL != "mem:" {
				if held := heldLocks(t, p.Client(t)); len(held) > 0 {
					t.Errorf("left behind: %v", held)
				}
			}
		})
	}
}

func TestDemoText(t *testing.T) {
	t.Parallel()
	code, out, stderr := cmdtest.Exec(t, nil, "demo", "--workers", "2", "--each", "1")
	for _, s := range []string{
		"without a lock:     2 increments in ", "the counter says 1: 1 lost\n", "with a lock on mem: 2 increments in ", "the counter says 2: none lost\n",
		"without a lock:     sold 120, the stock says 40: 20 oversold, none refused\n", "with a lock on mem: sold 60, the stock says 40: none oversold, 1 refused\n",
	} {
		if !strings.Contains(out, s) {
			t.Errorf("no %q in\n%s", s, out)
		}
	}
	// Tokens rise, but need not begin at 1: locks of one space may share a counter.
	var unchecked, successor, checked, refused, seen uint64
	_, text, _ := strings.Cut(out, "tokens not checked: ")
	text, last, _ := strings.Cut(text, "tokens checked: ")
	_, err := fmt.Sscanf(text, "the last write is that of token %d, though %d came after it", &unchecked, &successor)
	if err == nil {
		_, err = fmt.Sscanf(strings.TrimSpace(last), "the last write is that of token %d; the other was refused (fence: stale fencing token %d: %d has been seen)", &checked, &refused, &seen)
	}
	if err != nil || unchecked >= successor || checked != successor || refused != unchecked || seen != successor {
		t.Errorf("want the write of the former holder last without a check and refused with one, got %v in\n%s", err, out)
	}
	if code != 0 || stderr != "" {
		t.Errorf("exit code %d, stderr %q", code, stderr)
	}
}

// Each demonstration notices a lock that does not exclude, and fails.
func TestDemoNoticesAFailure(t *testing.T) {
	t.Parallel()
	const n = 4
	var clients []*lock.Client
	var ms []lock.Mutex
	for range n {
		c := (&cmdtest.Service{URL: "mem:"}).Client(t) // shares nothing
		clients, ms = append(clients, c), append(ms, c.Mutex("x"))
	}
	c, err := increment(t.Context(), ms, 3, true)
	if err != nil || !c.Locked || !c.wrong() || c.Lost < n-1 {
		t.Errorf("%v, %+v", err, c)
	}
	s, err := sell(t.Context(), ms[:buyers], true)
	if err != nil || !s.Locked || !s.wrong() || s.Oversold != 20 {
		t.Errorf("%v, %+v", err, s)
	}
	w, err := writeAfterLoss(t.Context(), clients[0], clients[1], "x")
	if err != nil || !w.wrong() || w.Refusal != "" {
		t.Errorf("%v, %+v", err, w)
	}
	var d demoReport
	err = d.run(t.Context(), io.Discard, &demoFlags{workers: n, each: 3}, func(string) []lock.Mutex { return ms }, clients)
	if err != nil || !d.Failed || d.verdict() == nil {
		t.Errorf("%v, %+v", err, d)
	}
}

func TestDemoUsage(t *testing.T) {
	t.Parallel()
	for args, says := range map[string]string{
		"--workers 1":   "invalid --workers 1: want 2 to 64",
		"--workers 65":  "invalid --workers 65: want 2 to 64",
		"--each 0":      "invalid --each 0: want 1 to 10000",
		"--each 10001":  "invalid --each 10001: want 1 to 10000",
		"--url nope://": "nope",
		"x":             `unexpected argument "x"`,
	} {
		code, out, stderr := cmdtest.Exec(t, nil, append([]string{"demo"}, strings.Fields(args)...)...)
		if code != lockcmd.ExitUsage || out != "" || !strings.Contains(stderr, says) {
			t.Errorf("%q: exit code %d, stdout %q, stderr %q", args, code, out, stderr)
		}
	}
}

// A signal ends the demonstration, which then leaves no lock held.
func TestDemoInterrupted(t *testing.T) {
	t.Parallel()
	for _, p := range cmdtest.Services(t) {
		t.Run(p.Name, func(t *testing.T) {
			r := cmdtest.Begin(t, nil, "demo", "--url", p.URL, "--workers", "32", "--each", "100")
			r.Stdout.Contains("without a lock:")
			awaitDemo(t, p.Client(t))
			r.Send(syscall.SIGINT)
			if code := r.Wait(); code != lockcmd.ExitSignal+int(syscall.SIGINT) {
				t.Errorf("exit code %d, stderr %q", code, r.Stderr.Text())
			}
			if held := heldLocks(t, p.Client(t)); len(held) > 0 {
				t.Errorf("left behind: %v", held)
			}
		})
	}
}

// awaitDemo waits until a demonstration holds its lock.
func awaitDemo(t *testing.T, c *lock.Client) {
	t.Helper()
	for t.Context().Err() == nil {
		if len(heldLocks(t, c)) > 0 {
			return
		}
	}
}

func heldLocks(t *testing.T, c *lock.Client) []string {
	t.Helper()
	var names []string
	for info, err := range c.List(t.Context()) {
		if err != nil {
			t.Fatal(err)
		}
		names = append(names, info.Name)
	}
	return names
}
