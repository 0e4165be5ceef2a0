package mysqllock

import (
	"testing"
	"time"
)

// TestNames: named locks of two tables, and of two databases, differ, and their length is
// within the limit of the servers.
func TestNames(t *testing.T) {
	used := map[string]bool{}
	for _, at := range []struct{ database, table string }{{"a", "t"}, {"b", "t"}, {"a", "u"}} {
		n := newNotifier(&Backend{table: table{name: at.table}}, at.database, 1, 1)
		for _, name := range []string{n.name(ownerOf(1)), n.processName("0123456789abcdef", 0), n.processName("0123456789abcdef", 4)} {
			if len(name) > 64+2 || used[name] {
				t.Errorf("%v: named lock %s", at, name)
			}
			used[name] = true
		}
	}
}

// TestReadAt: a row was read before its answer was received, and not later than the server's
// clock says, which may be faster than the local one.
func TestReadAt(t *testing.T) {
	sent := time.Now()
	for name, c := range map[string]struct{ waited, received, want time.Duration }{
		"at once":                  {0, time.Millisecond, 0},
		"after a wait":             {90 * time.Second, 91 * time.Second, 90*time.Second - 45*time.Millisecond},
		"faster clock":             {90 * time.Second, 90*time.Second - 40*time.Millisecond, 90*time.Second - 45*time.Millisecond},
		"clock set forward":        {time.Hour, time.Second, time.Second},
		"answer after a long time": {time.Second, time.Hour, time.Second - 500*time.Microsecond},
	} {
		if got := readAt(sent, sent.Add(c.received), c.waited).Sub(sent); got != c.want {
			t.Errorf("%s: want %v after the request, got %v", name, c.want, got)
		}
	}
}
