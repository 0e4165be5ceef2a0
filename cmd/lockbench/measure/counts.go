package measure

import (
	"context"
	"errors"
	"fmt"
	"runtime/metrics"
	"time"
)

// Spent is what a measurement has used of processors and memory.
type Spent struct {
	Client *time.Duration `json:"client_ns,omitempty"` // processor time of this process; nil if unknown
	Server *time.Duration `json:"server_ns,omitempty"` // processor time of the server; nil if unknown
	Allocs int64          `json:"allocations"`         // of this process
}

// spent returns what was used until now.
func (t Target) spent(ctx context.Context) (s Spent, err error) {
	if t.Processor != nil {
		d, err := t.Processor(ctx)
		switch {
		case err == nil:
			s.Server = &d
		case !errors.Is(err, errors.ErrUnsupported):
			return s, fmt.Errorf("processor time of the server: %w", err)
		}
	}
	if d, ok := processorTime(); ok {
		s.Client = &d
	}
	sample := []metrics.Sample{{Name: "/gc/heap/allocs:objects"}}
	metrics.Read(sample)
	s.Allocs = int64(sample[0].Value.Uint64())
	return s, nil
}

// since returns what was used since before.
func (s Spent) since(before Spent) *Spent {
	return &Spent{
		Client: difference(before.Client, s.Client), Server: difference(before.Server, s.Server), Allocs: s.Allocs - before.Allocs,
	}
}

// counts are counters of the server, each nil if it is unknown.
type counts struct{ operations, written *int64 }

func (t Target) count(ctx context.Context) (c counts, err error) {
	for _, one := range []struct {
		read func(context.Context) (int64, error)
		to   **int64
	}{{t.Operations, &c.operations}, {t.Written, &c.written}} {
		if one.read == nil {
			continue
		}
		n, err := one.read(ctx)
		if err != nil {
			return c, fmt.Errorf("counters of the server: %w", err)
		}
		*one.to = &n
	}
	return c, nil
}

func difference[T ~int64](before, after *T) *T {
	if before == nil || after == nil {
		return nil
	}
	n := *after - *before
	return &n
}
