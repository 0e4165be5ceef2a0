package record

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/interlock-go/lock/backend"
)

// place is that of a process which waits, in the record.
type place struct {
	Process string `json:"process"`
	Turn    int64  `json:"turn_ms"` // for how long a free record is left to it
}

const (
	// placeAfter is for how long a waiter waits before it writes a place, unless other processes get the lock before it.
	placeAfter = 100 * time.Millisecond
	// shortestTurn is long enough for a process that is notified, also on a busy machine.
	shortestTurn = time.Second
	longestTurn  = 24 * time.Hour
	maxPlaces    = 64 // so a record has at most 6 kB
)

// index returns the position of a process among those that wait, -1 if it has no place.
func (v *value) index(process string) int {
	return slices.IndexFunc(v.Waiting, func(p place) bool { return p.Process == process })
}

// before returns how many other processes are before one.
func (v *value) before(process string) int {
	if i := v.index(process); i >= 0 {
		return i
	}
	return len(v.Waiting)
}

// behind returns the places behind that of a process, which gets the lock: those before it had their turns.
func (v *value) behind(process string) []place {
	return v.Waiting[min(v.before(process)+1, len(v.Waiting)):]
}

// without returns the places of all but a process.
func (v *value) without(process string) []place {
	return slices.DeleteFunc(slices.Clone(v.Waiting), func(p place) bool { return p.Process == process })
}

// turns returns for how long a process leaves a record that may be taken to those before it. The first one has its whole turn;
// all together have no more than limit if that is longer.
func (v *value) turns(process string, limit time.Duration) (sum time.Duration) {
	for i, p := range v.Waiting[:v.before(process)] {
		sum += time.Duration(p.Turn) * time.Millisecond
		if i == 0 {
			limit = max(limit, sum)
		}
	}
	return min(sum, limit)
}

// validPlaces reports whether this package can have written the places.
func (v *value) validPlaces() bool {
	return len(v.Waiting) <= maxPlaces && !slices.ContainsFunc(v.Waiting, func(p place) bool {
		return p.Process == "" || p.Turn <= 0 || p.Turn > longestTurn.Milliseconds()
	})
}

// joinable reports whether a process may write its place into the record: another one holds it. One of the same process
// adds the place when it releases the lock. The time for which a record is kept counts from its last write.
func (v *value) joinable(process string) bool {
	return v.Held && !v.foreign && !v.Kept && v.Version == format && v.Process != process && v.unchanged < v.ttl() &&
		v.index(process) < 0 && len(v.Waiting) < maxPlaces
}

// join writes the place of this process, as the last one, into a record that was read.
func (l *Locks) join(ctx context.Context, key string, at look, turn time.Duration) (version string, err error) {
	l.seen.place(key, true) // also if the outcome is unknown
	waiting := append(slices.Clone(at.Waiting), place{l.process, milliseconds(turn)})
	return l.edit(ctx, key, at.item, at.value, waiting)
}

// edit writes other places into a record that is held. The lease counts from the version that its holder has written.
func (l *Locks) edit(ctx context.Context, key string, item Item, v value, waiting []place) (version string, err error) {
	v.Waiting, v.Origin = waiting, cmp.Or(v.Origin, item.Version)
	v.Edits++
	return l.store.Write(ctx, key, v.encode(), item.Version, v.ttl())
}

// elapsed reports whether those before a process had their turns of a free record, by the service, for a process that does
// not wait: it may have seen the record for no time.
func (l *Locks) elapsed(ctx context.Context, key string, at look, turns time.Duration) (bool, error) {
	t, ok := l.store.(Timer)
	if !ok || at.Held || at.item.Written.IsZero() {
		return false, nil
	}
	free, err := t.Elapsed(ctx, key, at.item)
	return free >= turns, err
}

// waiters describes the processes that wait.
func (v *value) waiters() (all []backend.Contender) {
	for _, p := range v.Waiting {
		all = append(all, backend.Contender{Owner: p.Process})
	}
	return all
}
