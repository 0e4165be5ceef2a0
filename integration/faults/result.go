package faults

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/interlock-go/lock"
	"github.com/interlock-go/lock/integration/faults/workload"
)

// Result is the result of a run.
type Result struct {
	Service, Fault string
	Seed           uint64
	Length         time.Duration

	Acquisitions int
	Shared       int           // those of them that were not exclusive
	Refused      int64         // Lock and TryLock without a grant
	Lost         int           // holds that were lost, or whose release was not acknowledged
	Early        int           // those of them whose trust was not over: the service, or the driver, gave them up
	Stale        int           // writes that the resource refused
	Away         time.Duration // the longest time without a grant
	Left         time.Duration // how long after the end the last key could be taken
	Violations   []Violation
	Log          []string

	ops   []workload.Op
	known []Rule
}

// Broken returns the number of violations of these rules.
func (res *Result) Broken(rules ...Rule) (n int) {
	for _, v := range res.Violations {
		if slices.Contains(rules, v.Rule) {
			n++
		}
	}
	return n
}

// sum counts the operations.
func (res *Result) sum(h *history, end int64) {
	last := h.begun
	var granted []int64
	for _, op := range h.ops {
		switch op.Kind {
		case workload.Acquired:
			res.Acquisitions++
			if !op.Share.Exclusive() {
				res.Shared++
			}
			granted = append(granted, op.Ret)
		case workload.Lost:
			res.Lost++
			if op.Early {
				res.Early++
			}
		case workload.Wrote:
			if !op.OK {
				res.Stale++
			}
		}
	}
	slices.Sort(granted)
	for _, at := range append(granted, end) {
		if at <= end {
			res.Away = max(res.Away, time.Duration(at-last))
			last = at
		}
	}
}

func (res *Result) String() string {
	return fmt.Sprintf("%s, %s, seed %d: %d acquisitions (%d shared), %d refused, %d lost (%d early), %d stale writes, away for %v, free after %v, %d violations",
		res.Service, res.Fault, res.Seed, res.Acquisitions, res.Shared, res.Refused, res.Lost, res.Early, res.Stale,
		res.Away.Round(time.Millisecond), res.Left.Round(time.Millisecond), len(res.Violations))
}

// Report fails the test if a rule was violated that is not Known. It prints the violations and
// the command that repeats the run, and writes the log, all operations and a picture to dir.
func (res *Result) Report(t testing.TB, test, dir string) {
	t.Helper()
	t.Log(res)
	if len(res.Violations) == 0 {
		return
	}
	var b strings.Builder
	fmt.Fprintf(&b, "%v\nrepeat it with: %s\n", res, res.replay(test))
	for _, v := range res.Violations {
		fmt.Fprintf(&b, "\n%v\n", v)
	}
	fmt.Fprintf(&b, "\n%s\n", strings.Join(res.Log, "\n"))
	text := b.String()
	name := filepath.Join(dir, strings.ReplaceAll(fmt.Sprintf("%s-%s-%d", res.Service, res.Fault, res.Seed), " ", "_"))
	if err := res.keep(dir, name, b.String()); err != nil {
		t.Errorf("keep the log: %v", err)
	}
	if res.Broken(res.known...) == len(res.Violations) {
		t.Logf("%.2000s\nthat is known of this service under this fault; log: %s.log", text, name)
		return
	}
	if len(text) > 6000 {
		text = text[:6000] + "\n…"
	}
	t.Errorf("%s\nlog and picture: %s.*", text, name)
}

func (res *Result) keep(dir, name, text string) error {
	if err := os.MkdirAll(dir, 0o750); err != nil {
		return err
	}
	if err := os.WriteFile(name+".log", []byte(text), 0o600); err != nil {
		return err
	}
	ops, err := os.Create(name + ".jsonl")
	if err != nil {
		return err
	}
	defer ops.Close()
	lines := json.NewEncoder(ops)
	for _, op := range res.ops {
		if err := lines.Encode(op); err != nil {
			return err
		}
	}
	for _, v := range res.Violations {
		if v.History == nil {
			continue
		}
		f, err := os.Create(name + ".html")
		if err != nil {
			return err
		}
		defer f.Close()
		return v.History.Visualize(f)
	}
	return nil
}

// remember keeps the last token of each key for later runs.
func (s *Service) remember(h *history) {
	if s.tokens == nil {
		s.tokens = map[string]uint64{}
	}
	for _, op := range h.ops {
		if op.Kind == workload.Acquired {
			s.tokens[h.keys[op.Key]] = max(s.tokens[h.keys[op.Key]], op.Token)
		}
	}
}

func (r *run) clients() []*lock.Client {
	var all []*lock.Client
	for _, c := range r.sessions {
		all = append(all, c.lock)
	}
	return all
}
