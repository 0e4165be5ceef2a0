package s3lock

import (
	"regexp"
	"time"

	"github.com/interlock-go/lock/backend"
	"github.com/interlock-go/lock/backend/record"
)

type options struct {
	prefix                string
	timeout, margin, poll time.Duration
}

func defaults() options {
	return options{prefix: DefaultPrefix, timeout: 5 * time.Second, margin: record.DefaultMargin, poll: time.Second}
}

// Option changes what New does.
type Option func(*options)

// WithPrefix sets the first part of all keys, instead of [DefaultPrefix]: 1 to 512 ASCII letters,
// digits, "-", "_" and ".", in parts separated by "/". All clients of a lock must use the same prefix.
func WithPrefix(prefix string) Option { return func(o *options) { o.prefix = prefix } }

// WithTimeout limits each request, from 10 ms to 1 h; the default is 5 s. It should be below a third of
// the TTL.
func WithTimeout(d time.Duration) Option { return func(o *options) { o.timeout = d } }

// WithMargin sets for how long beyond its TTL a lock must be unchanged, by the clock of the
// service, until a client that has not watched it may take it: from 1 s to 24 h. The default
// is 10 minutes. The clocks of the service must not jump by it.
func WithMargin(d time.Duration) Option { return func(o *options) { o.margin = d } }

// WithPoll sets the average interval at which a waiter reads the lock, from 10 ms to 1 h; the
// default is 1 s. Of the waiters of one process for one lock only the first reads it, and after a
// change of the holder more often for a while.
func WithPoll(d time.Duration) Option { return func(o *options) { o.poll = d } }

func (o *options) check() error {
	if err := checkPrefix(o.prefix); err != nil {
		return err
	}
	for _, d := range []struct {
		name        string
		value, from time.Duration
		to          time.Duration
		accepted    string
	}{
		{"timeout", o.timeout, 10 * time.Millisecond, time.Hour, "10ms to 1h"},
		{"margin", o.margin, time.Second, 24 * time.Hour, "1s to 24h"},
		{"poll", o.poll, 10 * time.Millisecond, time.Hour, "10ms to 1h"},
	} {
		if d.value < d.from || d.value > d.to {
			return backend.Invalid(d.name, d.value, d.accepted)
		}
	}
	return nil
}

var (
	bucketName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{1,254}$`)
	regionName = regexp.MustCompile(`^[A-Za-z0-9-]{1,63}$`)
)
