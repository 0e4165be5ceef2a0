package natslock

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/interlock-go/lock/backend/record"
)

// Key returns the key of a lock in its bucket: bytes other than letters, digits, "-", "_" and
// "/" are written as "=" and two hexadecimal digits.
func Key(name string) string {
	var key strings.Builder
	for i := range len(name) {
		c := name[i]
		if c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '-' || c == '_' || c == '/' {
			key.WriteByte(c)
		} else {
			fmt.Fprintf(&key, "=%02X", c)
		}
	}
	return key.String()
}

// nameOf returns the name of the lock that has a key, and false if none has.
func nameOf(key string) (string, bool) {
	name, err := url.PathUnescape(strings.ReplaceAll(key, "=", "%"))
	return name, err == nil && Key(name) == key
}

// store implements record.Store.
type store struct{ *Backend }

// message is a record as the leader of the stream returns it.
type message struct {
	Error   *jetstream.APIError `json:"error"`
	Message struct {
		Seq  uint64    `json:"seq"`
		Data []byte    `json:"data"`
		Time time.Time `json:"time"`
	} `json:"message"`
}

// Read asks the leader of the stream: its replicas may lag behind.
func (b store) Read(ctx context.Context, name string) (record.Item, error) {
	var m message
	query, err := json.Marshal(map[string]string{"last_by_subj": b.subjects() + Key(name)})
	if err != nil {
		return record.Item{}, err
	}
	subject := b.api("STREAM.MSG.GET")
	err = b.query(ctx, subject, func(ctx context.Context) error {
		m = message{}
		reply, err := b.conn.RequestWithContext(ctx, subject, query)
		if err == nil {
			err = json.Unmarshal(reply.Data, &m)
		}
		if err == nil && m.Error != nil {
			err = m.Error
		}
		return err
	})
	switch {
	case errors.Is(err, jetstream.ErrMsgNotFound):
		return record.Item{}, nil
	case err != nil:
		return record.Item{}, err
	}
	item := record.Item{Value: m.Message.Data, Version: strconv.FormatUint(m.Message.Seq, 10)}
	if time.Since(m.Message.Time) > b.opt.margin { // by the clock of this machine: perhaps it is time to ask
		info, err := b.info(ctx)
		if err != nil {
			return record.Item{}, err
		}
		item.Idle = max(0, info.TimeStamp.Sub(m.Message.Time)) // 0 from servers before 2.10
	}
	return item, nil
}

func (b store) Write(ctx context.Context, name string, value []byte, version string, _ time.Duration) (string, error) {
	var ack *jetstream.PubAck
	subject := b.subjects() + Key(name)
	err := b.request(ctx, subject, func(ctx context.Context) (err error) {
		ack, err = b.js.Publish(ctx, subject, value,
			jetstream.WithExpectLastSequencePerSubject(revision(version)), // 0: no record
			jetstream.WithRetryAttempts(0))
		return err
	})
	if err != nil {
		return "", err
	}
	return strconv.FormatUint(ack.Sequence, 10), nil
}
