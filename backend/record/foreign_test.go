package record_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/interlock-go/lock/backend"
	"github.com/interlock-go/lock/backend/record"
)

// A record that this version of the package cannot have written is a lock of another program: it is not taken, it does
// not expire, and no field of it is lost.
func TestOtherRecords(t *testing.T) {
	for what, text := range map[string]string{
		"another version":       `{"version":3,"held":false,"owner":"x","writes":1,"token":5,"ttl_ms":0,"readers":[]}`,
		"no version":            `{"held":false,"owner":"x","writes":1,"token":5,"ttl_ms":0}`,
		"the greatest token":    `{"version":1,"held":false,"owner":"x","writes":1,"token":18446744073709551615,"ttl_ms":0}`,
		"a token over int64":    `{"version":1,"held":false,"owner":"x","writes":1,"token":9223372036854775808,"ttl_ms":0}`,
		"a token over 64 bits":  `{"version":1,"held":false,"owner":"x","writes":1,"token":18446744073709551616,"ttl_ms":0}`,
		"a negative token":      `{"version":1,"held":false,"owner":"x","writes":1,"token":-1,"ttl_ms":0}`,
		"no token":              `{"version":1,"held":false,"owner":"x","writes":1,"ttl_ms":0}`,
		"held without a TTL":    `{"version":1,"held":true,"owner":"x","writes":1,"token":5}`,
		"held for a TTL of 0":   `{"version":1,"held":true,"owner":"x","writes":1,"token":5,"ttl_ms":0}`,
		"a negative TTL":        `{"version":1,"held":true,"owner":"x","writes":1,"token":5,"ttl_ms":-1}`,
		"a TTL over a Duration": `{"version":1,"held":true,"owner":"x","writes":1,"token":5,"ttl_ms":9223372036854775807}`,
		"free with a TTL":       `{"version":1,"held":false,"owner":"x","writes":1,"token":5,"ttl_ms":1}`,
		"free and kept":         `{"version":1,"held":false,"kept":true,"owner":"x","writes":1,"token":5,"ttl_ms":0}`,
		"negative writes":       `{"version":1,"held":true,"owner":"x","writes":-1,"token":5,"ttl_ms":1000}`,
		"a negative age":        `{"version":1,"held":true,"owner":"x","writes":1,"token":5,"ttl_ms":1000,"age_ms":-1}`,
		"no owner":              `{"version":1,"held":false,"writes":1,"token":5,"ttl_ms":0}`,
		"no process waits":      `{"version":2,"held":false,"owner":"x","writes":1,"token":5,"ttl_ms":0,"waiting":[{"turn_ms":1}]}`,
		"no turn":               `{"version":2,"held":false,"owner":"x","writes":1,"token":5,"ttl_ms":0,"waiting":[{"process":"p","turn_ms":0}]}`,
		"a turn over a day":     `{"version":2,"held":false,"owner":"x","writes":1,"token":5,"ttl_ms":0,"waiting":[{"process":"p","turn_ms":86400001}]}`,
		"65 processes wait":     `{"version":2,"held":false,"owner":"x","writes":1,"token":5,"ttl_ms":0,"waiting":[` + places(65) + `]}`,
		"text":                  `"held"`, "a list": `[]`, "null": `null`, "an object": `{}`, "a space": ` `, "no JSON": `{"version":1`,
	} {
		synctest.Test(t, func(t *testing.T) {
			m := newMemory()
			_, err := m.Write(t.Context(), "k", []byte(text), "", 0)
			nothing(t, err)
			l := record.New(m, record.Options{})
			for range 3 {
				_, err = l.TryAcquire(t.Context(), request("a"))
				var locked *backend.LockedError
				if !errors.As(err, &locked) || !locked.Holder.Foreign {
					t.Errorf("%s: want it held by another program, got %v", what, err)
				}
				time.Sleep(time.Hour)
			}
			nothing(t, l.Abandon(t.Context(), request("a")))
			if got := string(m.items["k"].Value); got != text {
				t.Errorf("%s: the record is now %s", what, got)
			}
		})
	}
}

func places(n int) string {
	all := make([]string, n)
	for i := range all {
		all[i] = fmt.Sprintf(`{"process":"p%d","turn_ms":1000}`, i)
	}
	return strings.Join(all, ",")
}

// A record of the form before is read, and a free one is taken. While it is held it has no place: its holder would take the
// record for that of another program.
func TestFormerRecords(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWatching()
		const held = `{"version":1,"held":true,"owner":"old","writes":1,"token":5,"ttl_ms":3600000}`
		_, err := w.Write(t.Context(), "k", []byte(held), "", 0)
		nothing(t, err)
		granted := waits(t, queue(w), "a")
		time.Sleep(time.Minute)
		if got := string(w.items["k"].Value); got != held {
			t.Errorf("a waiter wrote %s", got)
		}
		_, err = w.Write(t.Context(), "k", []byte(`{"version":1,"held":false,"owner":"old","writes":2,"token":5,"ttl_ms":0}`), "1", 0)
		nothing(t, err)
		if g := <-granted; g.Token() != 6 {
			t.Errorf("token %d after 5", g.Token())
		}
	})
}

// What is written can be read by the same version, and what is read never panics.
func FuzzRecord(f *testing.F) {
	f.Add([]byte(`{"version":1,"held":true,"owner":"x","writes":1,"token":4611686018427387903,"ttl_ms":9223372036854,"age_ms":9223372036854}`))
	f.Add([]byte(`{"version":2,"held":true,"owner":"x","writes":1,"token":5,"ttl_ms":9,"process":"p","origin":"7","edits":1,"waiting":[` + places(64) + `]}`))
	f.Add([]byte(`{"version":1,"held":false,"owner":"x","writes":18446744073709551615,"token":5,"ttl_ms":0}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		if len(text) == 0 {
			return // no record
		}
		for _, opt := range []record.Options{{}, {Token: func(version string) uint64 { n, _ := strconv.ParseUint(version, 10, 64); return n }}} {
			m := newMemory()
			_, err := m.Write(t.Context(), "k", text, "", 0)
			nothing(t, err)
			l := record.New(m, opt)
			if _, err := l.Inspect(t.Context(), "k"); err != nil {
				t.Error(err)
			}
			g, err := l.TryAcquire(t.Context(), request("a"))
			if errors.Is(err, backend.ErrLocked) {
				if _, err = l.Break(t.Context(), "k", ""); err != nil {
					t.Fatal(err)
				}
				g, err = l.TryAcquire(t.Context(), request("a"))
			}
			if info, _ := l.Inspect(t.Context(), "k"); errors.Is(err, backend.ErrLocked) && len(info.Waiters) > 0 {
				return // others wait
			}
			if err != nil || g.Token() == 0 {
				t.Fatalf("token %v, %v", g, err)
			}
			nothing(t, g.Renew(t.Context(), ttl))
			nothing(t, g.Release(t.Context()))
		}
	})
}

// A record has no time of a clock: two machines with different ones write the same.
func TestRecordHasNoTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMemory()
		g := take(t, record.New(m, record.Options{}), "a")
		time.Sleep(3 * time.Second)
		nothing(t, g.Renew(t.Context(), ttl))
		want := fmt.Sprintf(`{"version":2,"held":true,"owner":"a","writes":1,"token":%d,"ttl_ms":10000,"metadata":"by a","age_ms":3000,"process":"`, g.Token())
		if got := string(m.items["k"].Value); !strings.HasPrefix(got, want) {
			t.Errorf("got  %s\nwant %s", got, want)
		}
		if !json.Valid(m.items["k"].Value) {
			t.Error("no JSON")
		}
	})
}

// An age is what the holder has measured and the time for which the observer has seen that. What is left is at most the
// TTL.
func TestInspect(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMemory()
		l := record.New(m, record.Options{})
		g := take(t, record.New(m, record.Options{}), "a")
		look := func(age, left time.Duration) {
			t.Helper()
			info, err := l.Inspect(t.Context(), "k")
			nothing(t, err)
			if h := info.Holder; h == nil || h.Age != age || h.Left != left {
				t.Errorf("want an age of %v and %v left, got %+v", age, left, h)
			}
			if listed, err := l.Info(t.Context(), "k", m.items["k"]); err != nil || !reflect.DeepEqual(listed, info) {
				t.Errorf("listed as %+v, %v", listed, err)
			}
		}
		look(0, ttl)
		time.Sleep(3 * time.Second)
		look(3*time.Second, ttl-3*time.Second)
		nothing(t, g.Renew(t.Context(), ttl))
		time.Sleep(3 * time.Second)
		look(3*time.Second, ttl)
		time.Sleep(ttl) // the holder is dead
		for _, read := range []func() (backend.Info, error){
			func() (backend.Info, error) { return l.Inspect(t.Context(), "k") },
			func() (backend.Info, error) { return l.Info(t.Context(), "k", m.items["k"]) },
		} {
			if info, err := read(); err != nil || info.Holder != nil {
				t.Errorf("of a dead holder: %+v, %v", info.Holder, err)
			}
		}
	})
}
