package natslock

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/interlock-go/lock/backend"
)

// maxAge is when a bucket that is created removes a record that was not written.
const maxAge = 25 * time.Hour

// replicated is the minor version of the oldest server on which a bucket may have several replicas. A
// new leader of older ones accepts conditional writes before it has applied what the former one has
// acknowledged.
const replicated = 11

func (b *Backend) stream() string { return "KV_" + b.bucket }

// api returns the subject of a request about the bucket.
func (b *Backend) api(request string) string {
	return jetstream.DefaultAPIPrefix + request + "." + b.stream()
}

// subjects of the records, and those on which the servers republish them.
func (b *Backend) subjects() string  { return "$KV." + b.bucket + "." }
func (b *Backend) republish() string { return "interlock." + b.bucket + "." }

// wanted is the configuration of a bucket that is created.
func (b *Backend) wanted() jetstream.StreamConfig {
	return jetstream.StreamConfig{
		Name:              b.stream(),
		Description:       "locks of interlock",
		Subjects:          []string{b.subjects() + ">"},
		Storage:           jetstream.FileStorage,
		Replicas:          b.opt.replicas,
		MaxMsgsPerSubject: 1,
		MaxAge:            maxAge,
		Discard:           jetstream.DiscardNew,
		DenyDelete:        true,
		AllowRollup:       true,
		AllowDirect:       true,
		Duplicates:        2 * time.Minute,
		FirstSeq:          uint64(time.Now().UnixMicro()),
		RePublish:         &jetstream.RePublish{Source: b.subjects() + ">", Destination: b.republish() + ">"},
	}
}

// prepare creates the bucket if it is absent, and verifies it.
func (b *Backend) prepare(ctx context.Context) error {
	info, err := b.info(ctx)
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		if err = b.verifyReplicas(b.opt.replicas); err == nil {
			err = b.create(ctx)
		}
		if err == nil || errors.Is(err, jetstream.ErrStreamNameAlreadyInUse) { // another client was faster
			info, err = b.info(ctx)
		}
	}
	if err != nil {
		return err
	}
	b.config = info.Config
	return b.verify()
}

func (b *Backend) create(ctx context.Context) error {
	return b.request(ctx, b.api("STREAM.CREATE"), func(ctx context.Context) error {
		_, err := b.js.CreateStream(ctx, b.wanted())
		return err
	})
}

// info returns the state of the bucket.
func (b *Backend) info(ctx context.Context) (info *jetstream.StreamInfo, err error) {
	err = b.query(ctx, b.api("STREAM.INFO"), func(ctx context.Context) error {
		s, err := b.js.Stream(ctx, b.stream())
		if err == nil {
			info = s.CachedInfo()
		}
		return err
	})
	return info, err
}

// verify refuses a bucket that the protocol cannot use.
func (b *Backend) verify() error {
	c, want := b.config, b.wanted()
	bad := func(setting string, value, accepted any) error {
		return backend.Invalid("bucket "+b.bucket+": "+setting, fmt.Sprint(value), fmt.Sprint(accepted))
	}
	switch {
	case len(c.Subjects) != 1 || c.Subjects[0] != want.Subjects[0]:
		return bad("subjects", c.Subjects, want.Subjects)
	case c.Mirror != nil || len(c.Sources) > 0:
		return bad("mirror or sources", "present", "none")
	case c.Retention != want.Retention:
		return bad("retention", c.Retention, want.Retention)
	case c.NoAck:
		return bad("no acknowledgements", true, false)
	case c.Discard != jetstream.DiscardNew:
		return bad("discard", c.Discard, want.Discard)
	case c.MaxAge != 0 && c.MaxAge < time.Minute:
		return bad("maximum age", c.MaxAge, "none, or 1m and more")
	case c.RePublish == nil:
		return bad("republish", "none", *want.RePublish)
	case *c.RePublish != *want.RePublish:
		return bad("republish", *c.RePublish, *want.RePublish)
	}
	return b.verifyReplicas(c.Replicas)
}

func (b *Backend) verifyReplicas(replicas int) error {
	version := b.conn.ConnectedServerVersion()
	var major, minor int
	if _, err := fmt.Sscanf(version, "%d.%d", &major, &minor); err != nil {
		return b.notConnected(fmt.Errorf("version %q of the server: %w", version, err))
	}
	if replicas > 1 && (major < 2 || major == 2 && minor < replicated) {
		return backend.Invalid("bucket "+b.bucket+": replicas", replicas, fmt.Sprintf("1 on a server %s, or servers from 2.%d", version, replicated))
	}
	return nil
}
