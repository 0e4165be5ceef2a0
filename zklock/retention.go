package zklock

import (
	"context"
	"math/rand/v2"
	"time"

	"github.com/interlock-go/lock/backend"
)

const maxUsed = 1 << 17 // names that a client remembers; the server deletes the others

// WithRetention sets how long the node of a lock stays after this client used it last; the
// default is 24 hours, the least a minute. Then the client deletes the node if it has no
// children, in one request. Zero disables that. The servers delete such nodes too, some
// time after their last child, but at most 10,000 in a minute.
func WithRetention(d time.Duration) Option {
	return func(o *options) error {
		o.retention = d
		return backend.CheckRetention(d)
	}
}

// noteUseLocked notes that the client has used the node of a lock. b.mu is held.
func (b *Backend) noteUseLocked(dir string) {
	if _, known := b.used[dir]; b.opt.retention > 0 && (known || len(b.used) < maxUsed) {
		b.used[dir] = time.Now()
	}
}

// unused returns up to n nodes of locks that this client has not used for the retention, and
// forgets them.
func (b *Backend) unused(now time.Time, n int) (dirs []string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for dir, at := range b.used {
		if len(dirs) < n && now.Sub(at) >= b.opt.retention {
			dirs = append(dirs, dir)
			delete(b.used, dir)
		}
	}
	return dirs
}

// deleteUnused deletes nodes of locks until Close. A token is the id of a transaction, so it
// goes on rising when a node is created again.
func (b *Backend) deleteUnused() {
	defer b.closing.Done()
	pause := min(b.opt.retention/4, 10*time.Minute)
	for b.life.Err() == nil {
		sleep(b.life, pause/2+rand.N(pause/2))
		for {
			dirs := b.unused(time.Now(), 1000)
			if len(dirs) == 0 || !b.deleteAll(dirs) {
				break
			}
		}
	}
}

// deleteAll deletes nodes of locks that are empty, up to 16 at a time. It returns false if
// there is no session for that.
func (b *Backend) deleteAll(dirs []string) bool {
	s, err := b.anySession(b.life)
	if err != nil {
		return false
	}
	defer s.release()
	inParallel(len(dirs), func(i int) {
		ctx, cancel := context.WithTimeout(b.life, b.opt.openTimeout)
		defer cancel()
		_ = s.deleteIfEmpty(ctx, dirs[i]) // after an error the server or the next user deletes it
	})
	return true
}
