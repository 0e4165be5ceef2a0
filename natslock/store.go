package natslock

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
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
	m, err := b.last(ctx, b.subjects()+Key(name))
	switch {
	case errors.Is(err, jetstream.ErrMsgNotFound):
		return record.Item{}, nil
	case err != nil:
		return record.Item{}, err
	}
	return record.Item{Value: m.Message.Data, Version: strconv.FormatUint(m.Message.Seq, 10), Written: m.Message.Time}, nil
}

// last returns the newest record of a subject.
func (b store) last(ctx context.Context, subject string) (m message, err error) {
	query, err := json.Marshal(map[string]string{"last_by_subj": subject})
	if err != nil {
		return m, err
	}
	api := b.api("STREAM.MSG.GET")
	err = b.query(ctx, api, func(ctx context.Context) error {
		m = message{}
		reply, err := b.conn.RequestWithContext(ctx, api, query)
		if err == nil {
			err = json.Unmarshal(reply.Data, &m)
		}
		if err == nil && m.Error != nil {
			err = m.Error
		}
		return err
	})
	return m, err
}

// clock is the key of a record that is written to learn the time of the leader. No lock has it.
const clock = "=time"

// Start implements record.Timer: the leader dates each record.
func (b store) Start(context.Context, string, time.Duration) error { return nil }

// Elapsed implements record.Timer. It writes a record and compares the times at which the leader wrote both: servers
// before 2.10 do not return their time.
func (b store) Elapsed(ctx context.Context, _ string, item record.Item) (time.Duration, error) {
	if _, err := b.publish(ctx, nats.NewMsg(b.writes()+clock)); err != nil {
		return 0, err
	}
	m, err := b.last(ctx, b.subjects()+clock)
	return max(0, m.Message.Time.Sub(item.Written)), err
}

func (b store) Write(ctx context.Context, name string, value []byte, version string, _ time.Duration) (string, error) {
	m := nats.NewMsg(b.writes() + Key(name))
	m.Data = value
	m.Header.Set(jetstream.ExpectedLastSubjSeqHeader, cmp.Or(version, "0")) // 0: no record
	return b.publish(ctx, m)
}

// publish writes a record, and returns its version. With Publish of the library the client takes a third more
// processor time for Lock and Unlock.
func (b store) publish(ctx context.Context, m *nats.Msg) (version string, err error) {
	err = b.request(ctx, m.Subject, func(ctx context.Context) error {
		reply, err := b.conn.RequestMsgWithContext(ctx, m)
		if err != nil {
			return err
		}
		var ack struct {
			Error *jetstream.APIError `json:"error"`
			Seq   uint64              `json:"seq"`
		}
		switch err = json.Unmarshal(reply.Data, &ack); {
		case err != nil:
			return err
		case ack.Error != nil:
			return ack.Error
		case ack.Seq == 0:
			return jetstream.ErrInvalidJSAck
		}
		version = strconv.FormatUint(ack.Seq, 10)
		return nil
	})
	return version, err
}
