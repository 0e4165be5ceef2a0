package memcachelock

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/bradfitz/gomemcache/memcache"

	"github.com/interlock-go/lock/backend"
	"github.com/interlock-go/lock/backend/record"
)

// RenewBatch implements backend.BatchRenewer for a backend that Open has made for one server. Each server of a list
// would delay the renewals of the others, and the address of the server of a caller's client is not known.
func (b *Backend) RenewBatch(ctx context.Context, renewals []backend.Renewal) []error {
	if len(b.nodes) == 1 && b.nodes[0].dial != nil {
		return b.RenewAll(ctx, renewals, store{b, true})
	}
	return slices.Repeat([]error{errors.ErrUnsupported}, len(renewals))
}

// ReadAll implements record.Batch.
func (b store) ReadAll(ctx context.Context, names []string) ([]record.Item, error) {
	keys := make([]string, len(names))
	for i, name := range names {
		keys[i] = b.key(name)
	}
	var got map[string]*memcache.Item
	n := b.nodes[0].node
	err := b.do(ctx, n, b.held, func() (err error) {
		got, err = n.client.GetMulti(keys)
		return err
	})
	if err != nil {
		return nil, err
	}
	items := make([]record.Item, len(names))
	for i, key := range keys {
		if item := got[key]; item != nil {
			items[i] = record.Item{Value: item.Value, Version: strconv.FormatUint(item.CasID, 10)}
		}
	}
	return items, nil
}

// WriteAll implements record.Batch.
func (b store) WriteAll(ctx context.Context, writes []record.Write) []error {
	n := b.nodes[0].node
	var errs []error
	err := b.do(ctx, n, b.held, func() error {
		errs = b.pipeline(ctx, n, writes)
		return nil
	})
	if err != nil { // of the context: errs belongs to the exchange still
		return slices.Repeat([]error{err}, len(writes))
	}
	return errs
}

// pipeline sends all requests before it reads the first reply, which the client library cannot. So it opens a connection
// for them.
func (b store) pipeline(ctx context.Context, n *node, writes []record.Write) []error {
	limited, cancel := context.WithTimeout(context.WithoutCancel(ctx), n.timeout())
	defer cancel()
	conn, err := n.dial(limited)
	if err != nil {
		return slices.Repeat([]error{classify(err)}, len(writes))
	}
	defer conn.Close()
	var request bytes.Buffer
	for _, w := range writes {
		fmt.Fprintf(&request, "cas %s 0 %d %d %s\r\n", b.key(w.Key), expiration(w.TTL+b.opt.margin), len(w.Value), w.Version)
		request.Write(w.Value)
		request.WriteString("\r\n")
	}
	_ = conn.SetDeadline(time.Now().Add(n.timeout())) // if that fails, so does the request
	_, err = conn.Write(request.Bytes())
	replies := bufio.NewReaderSize(conn, 2048)
	errs := make([]error, len(writes))
	for i := range writes {
		var reply []byte
		if err == nil {
			_ = conn.SetDeadline(time.Now().Add(n.timeout()))
			reply, err = replies.ReadSlice('\n')
		}
		switch text := strings.TrimSpace(string(reply)); {
		case err != nil:
			errs[i] = classify(err)
		case text == "STORED":
		case text == "EXISTS", text == "NOT_FOUND", text == "NOT_STORED":
			errs[i] = record.ErrChanged
		default:
			errs[i] = classify(fmt.Errorf("unexpected reply to cas: %q", text))
		}
	}
	return errs
}
