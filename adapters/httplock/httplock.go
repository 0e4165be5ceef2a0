// Package httplock is net/http middleware that serves requests one at a time for each
// key: one payment for each order, one upload for each file, whichever replica of the
// service a request reaches.
//
//	payments := httplock.Middleware{
//		Mutex: func(r *http.Request) lock.Mutex { return c.Mutex("payments/" + r.PathValue("order")) },
//		Wait:  2 * time.Second,
//	}
//	mux.Handle("POST /orders/{order}/payment", payments.Handler(pay))
//
// The handler's request context ends with the cause lock.ErrLost when the lock is lost,
// before another request can have it. A handler looks at it before it commits, as it
// does for a client that has gone; nothing can take back a response that was sent.
package httplock

import (
	"context"
	"errors"
	"net/http"
	"time"

	"github.com/interlock-go/lock"
)

// Middleware says which requests exclude each other. It may be used by any number of
// handlers.
type Middleware struct {
	// Mutex returns the lock under which a request is served, nil for none. What
	// a client chooses of the name is escaped or prefixed so that it cannot be that of
	// another purpose.
	Mutex func(*http.Request) lock.Mutex

	// Wait is how long a request waits for its turn at most; it also ends with the
	// request. Zero refuses at once if another is being served.
	Wait time.Duration

	// Refused answers a request that did not get the lock because of err. Nil is Refuse.
	Refused func(w http.ResponseWriter, r *http.Request, err error)
}

// Handler returns next, one request at a time for each lock.
func (m Middleware) Handler(next http.Handler) http.Handler {
	refused := m.Refused
	if refused == nil {
		refused = Refuse
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mu := m.Mutex(r)
		if mu == nil {
			next.ServeHTTP(w, r)
			return
		}
		served := false
		err := lock.Do(r.Context(), bounded{mu, m.Wait}, func(ctx context.Context) error {
			served = true
			next.ServeHTTP(w, r.WithContext(ctx))
			return nil
		})
		if !served { // else the response is next's, and the client's logger and observers tell of the lock
			refused(w, r, err)
		}
	})
}

// bounded waits for a time at most.
type bounded struct {
	lock.Mutex
	wait time.Duration
}

func (b bounded) Lock(ctx context.Context) (*lock.Lease, error) {
	if b.wait <= 0 {
		return b.TryLock(ctx)
	}
	ctx, cancel := context.WithTimeout(ctx, b.wait)
	defer cancel()
	return b.Mutex.Lock(ctx)
}

// Refuse answers 409 Conflict if another request is being served, 400 Bad Request if
// the lock's name or options can never work, and else 503 Service Unavailable.
func Refuse(w http.ResponseWriter, _ *http.Request, err error) {
	code := http.StatusServiceUnavailable
	switch {
	case errors.Is(err, lock.ErrLocked):
		code = http.StatusConflict
	case errors.Is(err, lock.ErrInvalid):
		code = http.StatusBadRequest
	}
	if code != http.StatusBadRequest {
		w.Header().Set("Retry-After", "1")
	}
	http.Error(w, http.StatusText(code), code)
}
