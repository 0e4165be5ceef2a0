package lockcmd

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/interlock-go/lock"
	"github.com/interlock-go/lock/backend"
)

func heldFor(name string, age time.Duration, waits ...time.Duration) lock.Info {
	i := lock.Info{Name: name, Holder: &lock.Holder{Contender: backend.Contender{Owner: "o", Metadata: "of " + name, Age: age}, Token: 7, Left: 9 * time.Second}}
	for _, w := range waits {
		i.Waiters = append(i.Waiters, backend.Contender{Owner: fmt.Sprint(w), Age: w})
	}
	return i
}

func TestTopOrder(t *testing.T) {
	t.Parallel()
	for order, want := range map[string]string{"waited": "bdcae", "waiters": "cbdae", "held": "eabcd", "name": "abcde"} {
		v := view{}
		v.update([]lock.Info{
			heldFor("a", 5*time.Second), heldFor("b", 4*time.Second, time.Second, 3*time.Second),
			heldFor("c", 3*time.Second, time.Second, time.Second, time.Second), heldFor("d", 2*time.Second, 2*time.Second, time.Second), heldFor("e", 9*time.Second),
		}, nil, orders[order])
		if order == "waited" {
			want = "bdcea" // without waiters, the longest held
		}
		got := ""
		for _, i := range v.held {
			got += i.Name
		}
		if got != want {
			t.Errorf("%s: %s, want %s", order, got, want)
		}
	}
	if len(orders) != len(orderNames) || slices.ContainsFunc(orderNames, func(n string) bool { return orders[n] == nil }) {
		t.Errorf("%q", orderNames)
	}
}

func TestTopTable(t *testing.T) {
	t.Parallel()
	v := view{backend: "mem"}
	held := []lock.Info{heldFor("n\x1b[2J", 90*time.Second, 1200*time.Millisecond), {Name: "etcd", Holder: &lock.Holder{Contender: backend.Contender{Owner: "f"}, Foreign: true}}, heldFor("c", 0)}
	v.update(held, nil, orders["name"])
	v.updated = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	v.seen = v.updated
	table := func(height int) string {
		var b strings.Builder
		v.table(&b, screen{width: 80, height: height})
		return b.String()
	}
	const all = `mem: 3 held, 1 waiting, at 03:04:05
NAME        TOKEN  HELD   LEFT  WAITERS  WAITED  HOLDER
"n\x1b[2J"  7      1m30s  9s    1        1.2s    "of n\x1b[2J"
etcd        -      -      -     0        -       a foreign owner f
c           7      -      9s    0        -       of c
`
	for height, want := range map[int]string{0: all, 5: all} {
		if got := table(height); got != want {
			t.Errorf("height %d:\n%s\nwant\n%s", height, got, want)
		}
	}
	if got := table(4); strings.Count(got, "\n") != 4 || !strings.HasSuffix(got, "\n... and 2 more\n") {
		t.Errorf("height 4:\n%s", got)
	}
	frame := string(v.frame(screen{width: 80, height: 6}))
	if want := "\x1b[?7l\x1b[H" + strings.ReplaceAll(all, "\n", "\x1b[K\n") + "\x1b[J\x1b[?7h"; frame != want {
		t.Errorf("%q\nwant %q", frame, want)
	}

	v.update(nil, errors.New("lock: list on mem: no\nroute"), orders["name"])
	v.updated = v.updated.Add(2 * time.Minute)
	v.update(nil, errors.New("lock: list on mem: no\nroute"), orders["name"])
	if got := table(0); !strings.HasPrefix(got, "mem: no answer at ") || !strings.Contains(got, ", the last was at 03:04:05: list on mem: no route\nNAME ") || !strings.HasSuffix(got, "of c\n") {
		t.Errorf("without an answer:\n%s", got)
	}
	v.update([]lock.Info{}, nil, orders["name"])
	if got := table(0); strings.Count(got, "\n") != 1 || !strings.HasSuffix(got, ", outages: 1\n") {
		t.Errorf("after the outage:\n%s", got)
	}
}
