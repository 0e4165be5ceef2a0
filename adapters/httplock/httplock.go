// Package httplock is net/http middleware that serves the requests for one key one at
// a time over all replicas of a service: one payment of an order, one upload of a file.
//
//	payments := httplock.Middleware{
//		Mutex: func(r *http.Request) lock.Mutex { return c.Mutex("payments/" + r.PathValue("order")) },
//		Wait:  2 * time.Second,
//	}
//	mux.Handle("POST /orders/{order}/payment", payments.Handler(pay))
//
// The context of the request ends with the cause lock.ErrLost when the lock is lost,
// before another request can hold it. A handler should check the context before it
// commits. A response that was sent cannot be revoked.
package httplock

import (
	"context"
	"errors"
	"net/http"
	"time"

	"github.com/interlock-go/lock"
)

// Middleware configures which requests exclude each other. Any number of handlers may
// use it.
type Middleware struct {
	// Mutex returns the lock for a request, or nil if the request needs none. Escape or
	// prefix the part of the name that the client of the request chooses.
	Mutex func(*http.Request) lock.Mutex

	// Wait bounds the wait for the lock, which also ends with the request. If Wait is
	// zero, a request is refused at once while another one holds the lock.
	Wait time.Duration

	// Refused answers a request that did not get the lock, because of err. The default is
	// Refuse.
	Refused func(w http.ResponseWriter, r *http.Request, err error)
}

// Handler returns a handler that calls next with at most one request for each lock at
// a time.
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
		wait := lock.WithWait(m.Wait)
		if m.Wait <= 0 {
			mu, wait = trying{mu}, lock.WithWait(0)
		}
		served := false
		err := lock.Do(r.Context(), mu, func(ctx context.Context) error {
			served = true
			next.ServeHTTP(w, r.WithContext(ctx))
			return nil
		}, wait)
		if !served { // otherwise next has answered; the client logs errors of the lock
			refused(w, r, err)
		}
	})
}

// trying is a Mutex whose Lock does not wait.
type trying struct{ lock.Mutex }

func (m trying) Lock(ctx context.Context) (*lock.Lease, error) { return m.TryLock(ctx) }

// Refuse answers 409 Conflict if another request holds the lock, 400 Bad Request if the
// name or an option of the lock is invalid, and 503 Service Unavailable otherwise.
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
