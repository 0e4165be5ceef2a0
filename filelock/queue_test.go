//go:build unix

package filelock

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/interlock-go/lock/backend"
)

var exclusiveShare = backend.Share{}

func permits(k, n int) backend.Share { return backend.Share{Weight: k, Capacity: n} }

// The holders are the longest prefix of the live tickets that fits.
func TestAdmission(t *testing.T) {
	w, r := exclusiveShare, backend.Reader
	for _, c := range []struct {
		shares  []backend.Share
		holders int
	}{
		{nil, 0},
		{[]backend.Share{w}, 1},
		{[]backend.Share{w, w}, 1},
		{[]backend.Share{w, r}, 1},
		{[]backend.Share{r, w, r}, 1},
		{[]backend.Share{r, r, r, w, r}, 3},
		{[]backend.Share{permits(2, 5), permits(3, 5), permits(1, 5)}, 2},
		{[]backend.Share{permits(2, 5), permits(4, 5), permits(1, 5)}, 1}, // the last would fit, and does not overtake
		{[]backend.Share{permits(2, 5), w, permits(1, 5)}, 1},
		{[]backend.Share{permits(5, 5), w}, 1},
	} {
		var a admission
		n := 0
		for _, s := range c.shares {
			if a.admit(s) {
				n++
			}
		}
		if n != c.holders || a.holders != n || a.full != (n < len(c.shares)) {
			t.Errorf("%v: %d holders (%+v), want %d", c.shares, n, a, c.holders)
		}
	}
}

// A record keeps its share through JSON, and what changes in place is where it is written.
func TestRecordOfShare(t *testing.T) {
	for _, s := range []backend.Share{exclusiveShare, backend.Reader, permits(1, 1), permits(3, 10), permits(backend.MaxPermits, backend.MaxPermits)} {
		in := record{Owner: "o", Name: "n"}
		in.setShare(s, place{before: 7})
		text, err := json.Marshal(in)
		if err != nil {
			t.Fatal(err)
		}
		var r record
		if err := json.Unmarshal(text, &r); err != nil || r.share() != s || r.slots() != nil {
			t.Errorf("%v: read as %v with slots %v, %v: %s", s, r.share(), r.slots(), err, text)
		}
		if s.Capacity > 0 {
			last := make([]int, s.Weight)
			for i := range last {
				last[i] = s.Capacity - s.Weight + i
			}
			copy(text[slotsAt:], slotText(s.Capacity, last))
			if err := json.Unmarshal(text, &r); err != nil || !slices.Equal(r.slots(), last) || r.share() != s {
				t.Errorf("%v: slots %v, %v, want %v: %s", s, r.slots(), err, last, text)
			}
			copy(text[slotsAt:], slotText(s.Capacity, last[1:])) // while it is being written
			if err := json.Unmarshal(text, &r); err != nil || r.slots() != nil {
				t.Errorf("%v: slots of half of a write: %v, %v", s, r.slots(), err)
			}
			continue
		}
		copy(text[modeAt:], modeRead)
		if err := json.Unmarshal(text, &r); err != nil || r.share() != backend.Reader {
			t.Errorf("%v after a downgrade: %v, %v: %s", s, r.share(), err, text)
		}
	}
	for _, text := range []string{
		`{"owner":"o"}`, // of an earlier version
		`{"mode":"x","owner":"o"}`,
		`{"mode":"p","owner":"o"}`,
		`{"mode":"p","slots":"--","owner":"o"}`,
		`{"mode":"p","slots":"--","weight":3,"owner":"o"}`,
		`{"mode":"p","slots":"--","weight":-1,"owner":"o"}`,
	} {
		var r record
		if err := json.Unmarshal([]byte(text), &r); err != nil || !r.share().Exclusive() {
			t.Errorf("%s: share %v, %v, want an exclusive one", text, r.share(), err)
		}
	}
}

// Tickets of earlier versions and of other programs exclude readers and permits.
func TestSharesBehindOtherTickets(t *testing.T) {
	for _, content := range []string{`{"name":"k","owner":"old","pid":1}`, "rubbish", ""} {
		b := open1(t, t.TempDir())
		release(t, try(t, b, "k"))
		f, err := os.Create(ticketPath(filepath.Join(b.root, "k"), 7))
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		if ok, err := tryFlock(f, exclusive); !ok || err != nil {
			t.Fatal(ok, err)
		}
		if _, err := f.WriteString(content); err != nil {
			t.Fatal(err)
		}
		for _, s := range []backend.Share{backend.Reader, permits(1, 3)} {
			req := request("k")
			req.Share = s
			wantErr(t, second(b.TryAcquire(t.Context(), req)), backend.ErrLocked)
		}
		out := queueShare(t, t.Context(), b, "k", permits(1, 3))
		wantHolders(t, b, "k", 1, 1)
		f.Close()
		release(t, served(t, out))
		wantNoTickets(t, b, "k")
	}
}

// A ticket whose directory was deleted ends when it would take its slots.
func TestClaimWithoutDirectory(t *testing.T) {
	b := open1(t, t.TempDir())
	req := request("k")
	req.Share = permits(1, 2)
	mine, _, _, err := b.arrive(t.Context(), &req, true)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.RemoveAll(mine.path); err != nil {
		t.Fatal(err)
	}
	wantErr(t, mine.claim(t.Context()), errGone)
	if mine.file != nil || b.ticket(ticketID{mine.path, req.Owner}) != nil {
		t.Error("the ticket is kept")
	}
}

// lockDir returns the open directory of a lock.
func lockDir(t *testing.T, b *Backend, key string) *directory {
	t.Helper()
	d, err := b.open(filepath.Join(b.root, key))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { d.Close() })
	return d
}

func wantSlots(t testing.TB, g backend.Grant, want ...int) {
	t.Helper()
	if got := g.(backend.SlotHolder).Slots(); !slices.Equal(got, want) {
		t.Errorf("slots %v, want %v", got, want)
	}
}

func wantHolders(t testing.TB, b *Backend, key string, holders, waiters int) backend.Info {
	t.Helper()
	info, err := b.Inspect(t.Context(), key)
	n := len(info.Others)
	if info.Holder != nil {
		n++
	}
	if err != nil || n != holders || len(info.Waiters) != waiters {
		t.Fatalf("want %d holders and %d waiters, got %s, %v", holders, waiters, text(info), err)
	}
	return info
}

func text(info backend.Info) string {
	b, err := json.Marshal(info)
	return fmt.Sprint(string(b), err)
}
