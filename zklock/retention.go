package zklock

import (
	"math/rand/v2"
	"time"

	"github.com/interlock-go/lock/backend"
	"github.com/interlock-go/lock/backend/call"
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

// noteUseLocked notes that the client has used the node of a lock. s.mu is held.
func (s *service) noteUseLocked(dir string) {
	if _, known := s.used[dir]; s.opt.retention > 0 && (known || len(s.used) < maxUsed) {
		s.used[dir] = time.Now()
	}
}

// deleteUnused deletes nodes of locks that the process has not used for the retention, until Close. A token is the id of
// a transaction, so it goes on rising when a node is created again.
func (s *service) deleteUnused() {
	pause := min(s.opt.retention/4, 10*time.Minute)
	for call.Sleep(s.life.Context(), pause/2+rand.N(pause/2)) {
		s.deleteBefore(time.Now().Add(-s.opt.retention))
	}
}

// deleteBefore deletes nodes that were last used before that.
func (s *service) deleteBefore(least time.Time) {
	var dirs []string
	s.mu.Lock()
	for dir, at := range s.used {
		if !at.After(least) {
			dirs = append(dirs, dir)
			delete(s.used, dir)
		}
	}
	s.mu.Unlock()
	_ = inParallel(len(dirs), func(i int) error { // after an error the server or the next user deletes it
		ctx, cancel := withLimit(s.life.Context(), s.opt.openTimeout)
		defer cancel()
		ss, _, err := s.home(ctx)
		if err != nil {
			return err
		}
		return ss.deleteIfEmpty(ctx, dirs[i])
	})
}
