package natslock

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/interlock-go/lock/backend"
	"github.com/interlock-go/lock/backend/record"
)

const (
	listBatch = 500 // records that a request of List returns at most
	// listPause is the pause until the servers of a cluster know the new consumer.
	listPause = 20 * time.Millisecond
	// listLife is when the servers remove the consumer of a client that has ended.
	listLife = time.Minute
)

// List implements backend.Lister.
func (b *Backend) List(ctx context.Context, yield func(backend.Info) bool) error {
	session := b.currentSession()
	var consumer jetstream.Consumer
	err := b.request(ctx, b.api("CONSUMER.CREATE"), func(ctx context.Context) (err error) {
		consumer, err = b.js.CreateConsumer(ctx, b.stream(), jetstream.ConsumerConfig{
			DeliverPolicy: jetstream.DeliverLastPerSubjectPolicy, FilterSubject: b.subjects() + ">", // 2.9 needs a filter
			AckPolicy: jetstream.AckNonePolicy, MemoryStorage: true, Replicas: 1, InactiveThreshold: listLife,
		})
		return err
	})
	if err != nil {
		return err
	}
	defer func() { // the servers remove it otherwise
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), b.opt.timeout)
		defer cancel()
		_ = b.js.DeleteConsumer(ctx, b.stream(), consumer.CachedInfo().Name)
	}()
	seen := map[string]bool{} // a record that is written meanwhile is delivered again
	for left := consumer.CachedInfo().NumPending; left > 0; {
		records, err := b.fetch(ctx, consumer, int(min(left, listBatch)))
		switch {
		case err != nil:
			return err
		case session.Err() != nil:
			return fmt.Errorf("nats: list: %w", errBroken)
		case len(records) == 0:
			return nil // the rest has been removed
		}
		for _, m := range records {
			meta, err := m.Metadata()
			if err != nil {
				return err
			}
			left = meta.NumPending
			name, ok := nameOf(strings.TrimPrefix(m.Subject(), b.subjects()))
			if !ok || seen[name] {
				continue
			}
			item := record.Item{Value: m.Data(), Version: strconv.FormatUint(meta.Sequence.Stream, 10), Written: meta.Timestamp}
			info, err := b.Info(ctx, name, item)
			if err != nil {
				return err
			}
			if info.Holder == nil {
				continue
			}
			if seen[name] = true; !yield(info) {
				return nil
			}
		}
	}
	return nil
}

// fetch returns up to n records, and fewer if there are no more.
func (b *Backend) fetch(ctx context.Context, consumer jetstream.Consumer, n int) (records []jetstream.Msg, err error) {
	caller := ctx
	ctx, cancel := context.WithTimeout(ctx, b.opt.timeout)
	defer cancel()
	for {
		if err := ctx.Err(); err != nil {
			return nil, b.ownError(caller, err)
		}
		batch, err := consumer.Fetch(n, jetstream.FetchMaxWait(b.opt.timeout))
		if err != nil {
			return nil, err
		}
		for m := range batch.Messages() {
			records = append(records, m)
		}
		if err = batch.Error(); !errors.Is(err, nats.ErrNoResponders) || len(records) > 0 {
			return records, b.ownError(caller, err)
		}
		select {
		case <-time.After(listPause):
		case <-ctx.Done():
			return nil, fmt.Errorf("nats: list: %w: %w", err, b.ownError(caller, ctx.Err()))
		}
	}
}
