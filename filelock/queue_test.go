//go:build unix

package filelock

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/interlock-go/lock/backend"
)

func permits(k, n int) backend.Share { return backend.Share{Weight: k, Capacity: n} }

// A record keeps its share through JSON, and the last complete line of a ticket counts.
func TestRecord(t *testing.T) {
	d := openDirectory(t)
	slots := make([]int, backend.MaxPermits)
	for i := range slots {
		slots[i] = i
	}
	for _, s := range []backend.Share{{}, backend.Reader, permits(1, 1), permits(3, 10), permits(backend.MaxPermits, backend.MaxPermits)} {
		r := record{Owner: "o", Name: "n", Share: s, Metadata: strings.Repeat("\x01", backend.MaxMetadata)}
		first, err := r.line()
		if err != nil {
			t.Fatal(err)
		}
		r.Slots = slots[:s.Weight]
		second, err := r.line()
		if err != nil {
			t.Fatal(err)
		}
		for size, want := range map[int]int{0: 0, len(second) / 2: 0, len(second) - 1: 0, len(second): s.Weight} {
			if got := readText(t, d, string(first)+string(second[:size])); got.foreign || got.Share != s || len(got.Slots) != want {
				t.Errorf("%v with %d bytes of %d: %+v, want %d slots", s, size, len(second), got, want)
			}
		}
	}
	for _, text := range []string{
		"", "rubbish\n", `{"owner":"o"}`, // not complete
		`{"name":"n"}` + "\n",
		`{"owner":"o","share":{"weight":3,"capacity":2}}` + "\n",
		`{"owner":"o","share":{"weight":-1}}` + "\n",
	} {
		if got := readText(t, d, text); !got.foreign || !got.Share.Exclusive() || got.Owner != ticketName(7) {
			t.Errorf("%q: %+v, want a foreign, exclusive one", text, got)
		}
	}
}

func readText(t *testing.T, d *directory, text string) contender {
	t.Helper()
	path := ticketPath(d.path, 7)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	return readTicket(f, 7)
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
	wantErr(t, second(mine.claim(t.Context())), backend.ErrLost)
	if mine.file != nil || b.ticket(mine.id()) != nil {
		t.Error("the ticket is kept")
	}
}

// lockDir returns the open directory of a lock.
func lockDir(t *testing.T, b *Backend, key string) *directory {
	t.Helper()
	d, err := b.use(filepath.Join(b.root, key))
	if err != nil {
		t.Fatal(err)
	}
	b.leave(d, false) // it stays open
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

func openDirectory(t *testing.T) *directory {
	t.Helper()
	b := open1(t, t.TempDir())
	d, err := b.openDirectory(b.root, false)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(d.close)
	return d
}
