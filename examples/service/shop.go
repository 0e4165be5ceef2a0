package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/interlock-go/lock"
	"github.com/interlock-go/lock/fence"
)

// shop ships orders, each by one process at a time.
type shop struct {
	locks  *lock.Client
	orders fence.Guards // stands for a database that refuses a stale token in the write
}

func (s *shop) register(mux *http.ServeMux) {
	mux.HandleFunc("POST /orders/{order}/ship", s.ship)
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "ok") })
	mux.HandleFunc("GET /readyz", s.ready)
}

// ship ships an order under its lock. The limit of the wait is the parameter wait of LOCK_URL.
func (s *shop) ship(w http.ResponseWriter, r *http.Request) {
	order := r.PathValue("order")
	err := lock.Do(r.Context(), s.locks.Mutex("orders/"+order), func(ctx context.Context) error {
		token, _ := lock.FromContext(ctx).Token()
		return s.orders.Do(order, token, func() error {
			return ctx.Err() // the work, which ends if the lock is lost
		})
	})
	switch {
	case err == nil:
		fmt.Fprintln(w, "shipped")
	case errors.Is(err, lock.ErrLocked): // another process ships it
		http.Error(w, "another process ships this order", http.StatusConflict)
	default:
		http.Error(w, err.Error(), http.StatusServiceUnavailable)
	}
}

// ready is the check of readiness, and not of liveness: a restart while the lock service is
// down ends leases that would have survived the outage.
func (s *shop) ready(w http.ResponseWriter, r *http.Request) {
	ctx, cancel := context.WithTimeout(r.Context(), time.Second)
	defer cancel()
	if err := s.locks.Ping(ctx); err != nil {
		http.Error(w, err.Error(), http.StatusServiceUnavailable)
		return
	}
	fmt.Fprintln(w, "ready")
}
