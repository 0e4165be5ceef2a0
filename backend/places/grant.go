package places

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/interlock-go/lock/backend"
)

var (
	_ backend.Grant      = (*attempt)(nil)
	_ backend.Keeper     = (*attempt)(nil)
	_ backend.Downgrader = (*attempt)(nil)
	_ backend.SlotHolder = (*attempt)(nil)
)

// Token implements backend.Grant.
func (a *attempt) Token() uint64 { return a.place.Token }

// Slots implements backend.SlotHolder.
func (a *attempt) Slots() []int { return slices.Clone(a.place.Slots) }

// Until implements backend.Grant.
func (a *attempt) Until() time.Time {
	a.b.mu.Lock()
	s, ttl := a.s, a.ttl
	a.b.mu.Unlock()
	if s == nil {
		return time.Now() // it is over
	}
	sent, most := s.Trust()
	if most == 0 {
		return time.Time{}
	}
	return sent.Add(min(ttl, most))
}

// held returns the session and the place of a grant, or why it was lost.
func (a *attempt) held() (*session, Place, error) {
	a.b.mu.Lock()
	defer a.b.mu.Unlock()
	if a.lost == nil && a.s == nil {
		return nil, a.place, a.gone()
	}
	return a.s, a.place, a.lost
}

func (a *attempt) gone() error {
	return fmt.Errorf("%w: the place %.200q of the attempt does not exist any more", backend.ErrLost, a.place.ID)
}

// Renew implements backend.Grant. It checks the place, and renews the session unless that was done a moment ago. If the
// answer takes longer than ctx, an earlier one counts that came since the last renewal: the session is renewed on its own.
func (a *attempt) Renew(ctx context.Context, ttl time.Duration) error {
	s, p, err := a.held()
	if err != nil {
		return err
	}
	sent, most := s.Trust()
	if most > 0 && ttl > most {
		return backend.Invalid("ttl", ttl, fmt.Sprintf("at most %v, the TTL of the session that holds the lock", most))
	}
	renewed, age := make(chan error, 1), min(most/20, time.Second)
	if most > 0 && time.Since(sent) > age {
		go func() { renewed <- s.Renew(ctx, age) }()
	} else {
		renewed <- nil
	}
	c, err := a.b.checks.check(ctx, a.b, p)
	if e := <-renewed; err == nil && (errors.Is(e, backend.ErrLost) || !a.moved(s)) {
		err = e
	}
	if err == nil && c == Ended {
		err = a.gone()
		a.lose(err, false)
	}
	if err == nil {
		_, _, err = a.held() // the session may have ended
	}
	if err != nil {
		return err
	}
	a.renewed, _ = s.Trust()
	a.b.mu.Lock()
	defer a.b.mu.Unlock()
	a.ttl = ttl
	return nil
}

// moved reports whether trust counts from a later time than at the last renewal, or at the grant.
func (a *attempt) moved(s *session) bool {
	sent, _ := s.Trust()
	return sent.After(a.renewed)
}

// Keep implements backend.Keeper. The session keeps the place, so d may be longer than its TTL; if the process dies, the
// service ends the place after the TTL.
func (a *attempt) Keep(ctx context.Context, d time.Duration) error {
	if s, _, err := a.held(); err != nil {
		return err
	} else if _, most := s.Trust(); most > 0 {
		d = min(d, most)
	}
	return a.Renew(ctx, d)
}

// Downgrade implements backend.Downgrader.
func (a *attempt) Downgrade(ctx context.Context) error {
	_, p, err := a.held()
	if err != nil {
		return err
	}
	reader := []Place{p}
	reader[0].Share = backend.Reader
	done := false
	if p.Share.Exclusive() {
		done, err = a.b.svc.Update(ctx, reader)
	}
	if err != nil || done {
		return err
	}
	q, err := a.b.svc.Read(ctx, a.req.Key, p.Order, 1) // it was lost, or is a reader by an earlier request
	if err != nil {
		return err
	}
	switch i := q.Index(p.ID); {
	case i < 0 || q.Places[i].Order != p.Order:
		err = a.gone()
		a.lose(err, false)
		return err
	case q.Places[i].Share.Exclusive():
		return backend.NotExecuted(fmt.Errorf("another program has changed the place %.200q", p.ID))
	}
	return nil
}

// Release implements backend.Grant.
func (a *attempt) Release(ctx context.Context) error {
	a.b.mu.Lock()
	lost := a.lost
	if lost == nil && a.s == nil { // it was released: another attempt may have the number
		lost = a.gone()
	}
	if lost != nil {
		a.b.mu.Unlock()
		return lost
	}
	a.state = over // from now on the end of the place is no loss
	r := a.removal()
	a.b.mu.Unlock()
	done := a.b.remove(ctx, []Removal{r})[0]
	if done.Err != nil {
		return done.Err
	}
	a.forget(true)
	if !done.Existed {
		return a.gone()
	}
	return nil
}

// lose ends a grant as lost, unless it is over. It reports that before it removes what may remain of the attempt: the
// core may not release a lost grant, and the service may still execute an unanswered request.
func (a *attempt) lose(cause error, report bool) {
	a.b.mu.Lock()
	lost := a.state == holding
	if lost {
		a.state, a.lost = over, cause
	}
	late := a.unanswered
	a.b.mu.Unlock()
	if !lost {
		return
	}
	if report && a.req.OnLost != nil {
		a.req.OnLost(cause)
	}
	if !late {
		a.forget(false)
		return
	}
	a.b.background(func(ctx context.Context) error {
		a.b.mu.Lock()
		r := a.removal()
		a.b.mu.Unlock()
		err := a.b.svc.Remove(ctx, []Removal{r})[0].Err
		if err == nil {
			a.forget(true)
		}
		return err
	})
}
