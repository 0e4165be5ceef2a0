package lockcmd

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/interlock-go/lock"
	"github.com/interlock-go/lock/backend"
)

func contender(owner string) backend.Contender { return backend.Contender{Owner: owner} }

// info is the state of a lock "x"; the holder is "" for none.
func info(holder string, token uint64, waiters ...string) lock.Info {
	i := lock.Info{Name: "x"}
	if holder != "" {
		i.Holder = &lock.Holder{Contender: contender(holder), Token: token}
	}
	for _, w := range waiters {
		i.Waiters = append(i.Waiters, contender(w))
	}
	return i
}

// shared is the state of a lock "x" that a holds, and another owner as a reader.
func shared(other string) lock.Info {
	i := info("a", 1)
	i.Others = []lock.Holder{{Contender: backend.Contender{Owner: other, Share: backend.Reader}, Token: 2}}
	return i
}

func TestChanges(t *testing.T) {
	t.Parallel()
	none := lock.Info{Name: "never"}
	for name, c := range map[string]struct {
		before lock.Info
		now    lock.Info
		repeat bool
		want   []string
	}{
		"at first free":       {none, info("", 0), false, []string{"free"}},
		"at first held":       {none, info("a", 1, "b", "c"), false, []string{"held by a, token 1", "waits: b (2 in all)", "waits: c (2 in all)"}},
		"the same":            {info("a", 1, "b"), info("a", 1, "b"), false, nil},
		"free as before":      {info("", 0), info("", 0), false, nil},
		"taken":               {info("", 0), info("a", 1), false, []string{"held by a, token 1"}},
		"freed":               {info("a", 1), info("", 0), false, []string{"free; was held by a, token 1"}},
		"handed to a waiter":  {info("a", 1, "b", "c"), info("b", 2, "c"), false, []string{"held by b, token 2; before by a, token 1"}},
		"overtaken":           {info("a", 1, "b"), info("c", 2, "b"), false, []string{"held by c, token 2; before by a, token 1"}},
		"held again":          {info("a", 1), info("a", 2), false, []string{"held by a, token 2; before by a, token 1"}},
		"a waiter gave up":    {info("a", 1, "b", "c"), info("a", 1, "c"), false, []string{"waits no more: b (1 left)"}},
		"one for another":     {info("a", 1, "b"), info("a", 1, "c"), false, []string{"waits no more: b (1 left)", "waits: c (1 in all)"}},
		"a waiter for all":    {info("a", 1, "b"), info("", 0), false, []string{"waits no more: b (0 left)", "free; was held by a, token 1"}},
		"beside another":      {info("a", 1), shared("b"), false, []string{"held by b, reads, token 2"}},
		"one of two left":     {shared("b"), info("a", 1), false, []string{"held no more by b, reads, token 2"}},
		"the first of two":    {shared("b"), info("b", 2), false, []string{"held no more by a, token 1"}},
		"two left":            {shared("b"), info("c", 3), false, []string{"held no more by a, token 1", "held no more by b, reads, token 2", "held by c, token 3"}},
		"two, and free":       {shared("b"), info("", 0), false, []string{"free; was held by a, token 1"}},
		"a waiter beside one": {info("a", 1, "b"), shared("b"), false, []string{"held by b, reads, token 2"}},
		"at first two":        {none, shared("b"), false, []string{"held by a, token 1", "held by b, reads, token 2"}},
		"seen again, two":     {shared("b"), shared("b"), true, []string{"held by a, token 1", "held by b, reads, token 2"}},
		"seen again":          {info("a", 1, "b"), info("a", 1, "b"), true, []string{"held by a, token 1"}},
		"seen again, changed": {info("a", 1), info("", 0), true, []string{"free; was held by a, token 1"}},
	} {
		last := &c.before
		if c.before.Name == none.Name {
			last = nil
		}
		var got []string
		for _, ch := range changes(last, c.now, c.repeat) {
			_, text, _ := strings.Cut(ch.String(), " x: ")
			got = append(got, text)
		}
		if !slices.Equal(got, c.want) {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}

// The text on a former holder has no times and no control characters.
func TestChangeText(t *testing.T) {
	t.Parallel()
	old := lock.Info{Name: "x", Holder: &lock.Holder{Contender: backend.Contender{Owner: "o", Metadata: "w\x1b[2J", Age: time.Second}, Token: 3, Left: time.Second}}
	c := changes(&old, lock.Info{Name: "a\r\nb"}, false)[0]
	c.Time = time.Date(2026, 1, 2, 3, 4, 5, 6e6, time.UTC)
	const want = `2026-01-02T03:04:05.006Z "a\r\nb": free; was held by "w\x1b[2J", token 3`
	if got := c.String(); got != want {
		t.Errorf("%s\nwant %s", got, want)
	}
	c = change{Name: "x", Event: "unseen", Error: errorText(errors.New("lock: dial redis://u:p@h/0\nno\x1b[2J"))}
	if got := c.String(); !strings.HasSuffix(got, "x: no answer: dial redis://***@h/0 no [2J") {
		t.Error(got)
	}
}
