package natslock

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

// maxAge is when a bucket that is created removes a record that was not written.
const maxAge = 25 * time.Hour

// replicated is the minor version of the oldest server on which a bucket may have several replicas. A
// new leader of older ones accepts conditional writes before it has applied what the former one has
// acknowledged.
const replicated = 11

// bounded is the minor version of the oldest server on which a bucket may have a greatest size. Older ones remove a record
// although they refuse the write that would replace it, when the bucket is full.
const bounded = 10

func (b *Backend) stream() string { return "KV_" + b.bucket }

// api returns the subject of a request about the bucket.
func (b *Backend) api(request string) string {
	return b.apiPrefix() + request + "." + b.stream()
}

func (b *Backend) apiPrefix() string {
	if b.opt.domain == "" {
		return jetstream.DefaultAPIPrefix
	}
	return "$JS." + b.opt.domain + ".API."
}

// subjects of the records, those to which they are written, and those on which the servers republish them.
func (b *Backend) subjects() string  { return "$KV." + b.bucket + "." }
func (b *Backend) republish() string { return "interlock." + b.bucket + "." }
func (b *Backend) writes() string {
	if b.opt.domain == "" {
		return b.subjects()
	}
	return b.apiPrefix() + b.subjects()
}

// wanted is the configuration of a bucket that is created.
func (b *Backend) wanted() jetstream.StreamConfig {
	return jetstream.StreamConfig{
		Name:              b.stream(),
		Description:       "locks of interlock",
		Subjects:          []string{b.subjects() + ">"},
		Storage:           jetstream.FileStorage,
		Replicas:          b.opt.replicas,
		MaxMsgsPerSubject: 1,
		MaxBytes:          b.maxBytes(),
		MaxAge:            maxAge,
		Discard:           jetstream.DiscardNew,
		DenyDelete:        true,
		AllowRollup:       true,
		AllowDirect:       true,
		Duplicates:        2 * time.Minute,
		FirstSeq:          uint64(time.Now().UnixMicro()),
		RePublish:         &jetstream.RePublish{Source: b.subjects() + ">", Destination: b.republish() + ">", HeadersOnly: true},
	}
}

func (b *Backend) maxBytes() int64 {
	if b.opt.maxBytes == 0 {
		return -1
	}
	return b.opt.maxBytes
}

// prepare creates the bucket if it is absent, and verifies it.
func (b *Backend) prepare(ctx context.Context) error {
	config, err := b.info(ctx)
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		if err = b.verifyServer(b.opt.replicas, b.opt.maxBytes); err == nil {
			err = b.create(ctx)
		}
		if err == nil || errors.Is(err, jetstream.ErrStreamNameAlreadyInUse) { // another client was faster
			config, err = b.info(ctx)
		}
	}
	if err != nil {
		return err
	}
	return b.verify(config)
}

func (b *Backend) create(ctx context.Context) error {
	return b.request(ctx, b.api("STREAM.CREATE"), func(ctx context.Context) error {
		_, err := b.js.CreateStream(ctx, b.wanted())
		return err
	})
}

// info returns the settings of the bucket, as the server has them: it may know more than the client library.
func (b *Backend) info(ctx context.Context) (config json.RawMessage, err error) {
	subject := b.api("STREAM.INFO")
	err = b.query(ctx, subject, func(ctx context.Context) error {
		var info struct {
			Error  *jetstream.APIError `json:"error"`
			Config json.RawMessage     `json:"config"`
		}
		reply, err := b.conn.RequestWithContext(ctx, subject, nil)
		if err == nil {
			err = json.Unmarshal(reply.Data, &info)
		}
		if err == nil && info.Error != nil {
			err = info.Error
		}
		config = info.Config
		return err
	})
	return config, err
}

// verifyServer refuses what the connected server cannot do with a bucket.
func (b *Backend) verifyServer(replicas int, maxBytes int64) error {
	version := b.conn.ConnectedServerVersion()
	var major, minor int
	if _, err := fmt.Sscanf(version, "%d.%d", &major, &minor); err != nil {
		return b.notConnected(fmt.Errorf("version %q of the server: %w", version, err))
	}
	before := func(first int) bool { return major < 2 || major == 2 && minor < first }
	switch {
	case replicas > 1 && before(replicated):
		return b.bad("replicas", replicas, fmt.Sprintf("1 on a server %s, or servers from 2.%d", version, replicated))
	case maxBytes > 0 && before(bounded):
		return b.bad("max_bytes", maxBytes, fmt.Sprintf("none on a server %s, or servers from 2.%d", version, bounded))
	}
	return nil
}
