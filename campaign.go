package lock

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/interlock-go/lock/backend"
)

// ErrResign is returned by a function that Campaign runs to give the leadership up and
// to campaign again, behind those who wait already.
var ErrResign = errors.New("resigned")

// CampaignOption configures Campaign or Every.
type CampaignOption interface {
	EveryOption
	applyCampaign(*campaignConfig)
}

type campaignConfig struct {
	least, most time.Duration
	onRetry     func(error)
}

type campaignOption func(*campaignConfig)

func (o campaignOption) applyCampaign(c *campaignConfig) { o(c) }
func (o campaignOption) applyEvery(c *everyConfig)       { o(&c.campaign) }

// WithBackoff sets the pause before campaigning again: about least at first, twice as
// long each time, most at most. A term that lasted for longer than most begins at
// least again. The default is 100 ms and 10 s.
func WithBackoff(least, most time.Duration) CampaignOption {
	return campaignOption(func(c *campaignConfig) { c.least, c.most = least, most })
}

// WithOnRetry has f called each time before Campaign or Every pauses to campaign
// again, with the reason: ErrResign, a lost lease (joined with what the function
// returned, if that was more than the end of its context), or why Lock failed. It is
// called in Campaign's own goroutine.
func WithOnRetry(f func(err error)) CampaignOption {
	return campaignOption(func(c *campaignConfig) { c.onRetry = f })
}

func newCampaignConfig() campaignConfig {
	return campaignConfig{least: 100 * time.Millisecond, most: 10 * time.Second, onRetry: func(error) {}}
}

func (c *campaignConfig) validate() error {
	if c.least < 2 || c.most < c.least { // a jittered pause needs two
		return backend.Invalid("backoff", fmt.Sprintf("%v to %v", c.least, c.most), "a positive pause and one that is not shorter")
	}
	return nil
}

// Campaign is leader election: it waits for m, runs lead while m is held, and goes on
// like that until the campaign is over. m's holder is the leader; make it with
// WithMetadata to say who that is, such as an address, to those who ask Leader.
//
// lead's context ends with the cause ErrLost when the leadership is lost, before
// anybody else can lead, and with ctx's cause when ctx ends. It carries ctx's values.
// lead must return soon after that: Campaign waits for it, so that the functions of
// two terms never overlap in this process. What ends a term:
//
//   - lead returns nil: the campaign is over. m is freed and Campaign returns nil.
//   - lead returns ErrResign: m is freed, and after a pause Campaign campaigns again.
//   - lead returns another error: the campaign is over. m is freed, and Campaign
//     returns that error, joined with that of freeing m if there is one.
//   - The leadership is lost before lead returns: after a pause Campaign campaigns
//     again, whatever lead returned, for a function that was stopped may return
//     anything. See WithOnRetry.
//   - ctx ends: the campaign is over. When lead has returned m is freed at once,
//     under a context of its own, and Campaign returns an error that matches
//     ctx.Err(), joined with lead's own, if any.
//   - lead panics: m is freed, and the panic goes on.
//
// A Lock that fails for a reason that may pass, such as a service that does not
// answer, is tried again after a pause; one that cannot succeed (ErrInvalid,
// ErrClosed, ErrLocked by ctx's own lease) is returned.
func Campaign(ctx context.Context, m Mutex, lead func(ctx context.Context) error, opts ...CampaignOption) error {
	cfg := newCampaignConfig()
	for _, o := range opts {
		o.applyCampaign(&cfg)
	}
	return cfg.run(ctx, m, func(ctx context.Context, _ *Lease) error { return lead(ctx) })
}

func (c *campaignConfig) run(ctx context.Context, m Mutex, lead func(context.Context, *Lease) error) error {
	if err := c.validate(); err != nil {
		return jointError("campaign", m.Name(), err)
	}
	pause := &backoff{c.least, c.most}
	for {
		l, err := m.Lock(ctx)
		if err == nil {
			began := time.Now()
			var again bool
			if again, err = term(ctx, l, lead); !again {
				return err
			}
			if time.Since(began) > c.most {
				pause.next = c.least
			}
		} else if ctx.Err() != nil || errors.Is(err, ErrLocked) || !transient(err) {
			return err
		}
		c.onRetry(err)
		if !pause.wait(ctx) {
			return jointError("campaign", m.Name(), contextError(ctx))
		}
	}
}

// term runs lead under a lease that it then frees. It reports whether to campaign
// again, and why the term is over.
func term(ctx context.Context, l *Lease, lead func(context.Context, *Lease) error) (again bool, err error) {
	inner, end := newDoContext(ctx, l)
	defer end()
	defer func() {
		stopped := inner.Err()
		over := l.Err() // before Unlock: what has ended the lease, and so the term
		said := beyondContext(inner, err)
		uerr := l.Unlock(ctx)
		switch {
		case ctx.Err() != nil:
			err = jointError("campaign", l.Name(), joined(joined(contextError(ctx), said), uerr))
		case stopped != nil && over == nil: // inner's timer for ctx's deadline was first
			err = jointError("campaign", l.Name(), joined(joined(stopped, said), uerr))
		case errors.Is(over, ErrLost):
			again, err = true, joined(over, said)
		case over != nil: // closed
			err = joined(over, said)
		default:
			again, err = errors.Is(err, ErrResign), joined(err, uerr)
		}
	}()
	return false, lead(inner, l)
}

// beyondContext is err if it says more than that ctx has ended.
func beyondContext(ctx context.Context, err error) error {
	if ctx.Err() != nil && (errors.Is(err, ctx.Err()) || errors.Is(err, context.Cause(ctx))) {
		return nil
	}
	return err
}

// joined is both errors, or the one there is.
func joined(x, y error) error {
	switch {
	case x == nil:
		return y
	case y == nil:
		return x
	}
	return fmt.Errorf("%w; %w", x, y)
}
