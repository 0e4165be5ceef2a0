package natslock

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/interlock-go/lock/backend"
	"github.com/interlock-go/lock/backend/call"
	"github.com/interlock-go/lock/backend/record"
)

var (
	errBroken = errors.New("the connection broke")
	errEnded  = errors.New("no answer until the connection ended")
)

// query is request for one that changes nothing. It is repeated, within the timeout, if the connection breaks.
func (b *Backend) query(ctx context.Context, subject string, do func(context.Context) error) error {
	end := time.Now().Add(b.opt.timeout)
	for {
		err := b.requestUntil(ctx, end, subject, do)
		if !errors.Is(err, errBroken) || ctx.Err() != nil || !time.Now().Before(end) {
			return err
		}
	}
}

// request makes a request to a subject, limited by the timeout, and classifies its error.
func (b *Backend) request(ctx context.Context, subject string, do func(context.Context) error) error {
	return b.requestUntil(ctx, time.Now().Add(b.opt.timeout), subject, do)
}

func (b *Backend) requestUntil(ctx context.Context, end time.Time, subject string, do func(context.Context) error) error {
	if err := ctx.Err(); err != nil {
		return backend.NotExecuted(err)
	}
	if b.ended.Err() != nil || b.conn.IsClosed() {
		return backend.ErrClosed
	}
	limited := &call.Context{}
	limited.Init(ctx, ctx, end)
	cancel := func() { limited.End(context.Canceled) }
	defer cancel()
	if !b.conn.IsConnected() {
		stop := context.AfterFunc(b.ended, cancel)
		err := b.awaitConnection(limited)
		stop()
		if err != nil {
			return b.notConnected(b.ownError(ctx, err))
		}
	}
	session, e := b.currentSession(), b.beginExchange()
	defer context.AfterFunc(session, cancel)() // the library goes on to wait for the reply
	err := b.ownError(ctx, do(limited))
	var api *jetstream.APIError
	switch {
	case err == nil:
		return nil
	case errors.Is(err, nats.ErrNoResponders),
		errors.Is(err, jetstream.ErrStreamNotFound), errors.Is(err, jetstream.ErrJetStreamNotEnabled):
		return backend.NotExecuted(fmt.Errorf("nats: no server leads the stream %s, it was deleted, or JetStream is off: %w", b.stream(), err))
	case errors.Is(err, nats.ErrReconnectBufExceeded):
		return b.notConnected(err)
	case errors.As(err, &api):
		if api.ErrorCode == jetstream.JSErrCodeStreamWrongLastSequence || api.ErrorCode == jetstream.JSErrCodeStreamWrongLastSequenceConstant {
			return record.ErrChanged
		}
	default:
		if denied := b.denied("Publish", subject); denied != nil {
			err = fmt.Errorf("%w: %w", denied, err) // the server does not answer a request that it does not permit
		}
	}
	if session.Err() != nil && b.ended.Err() == nil && api == nil {
		err = fmt.Errorf("%w: %w", errBroken, err)
	} else if !errors.Is(err, nats.ErrPermissionViolation) {
		b.unanswered(limited, e)
	}
	return fmt.Errorf("nats: %w", err)
}

// ownError returns err with the error of the caller's context, if that has ended, and else without that of a context which
// the driver itself ended.
func (b *Backend) ownError(caller context.Context, err error) error {
	switch end := caller.Err(); {
	case end != nil && (err == nil || errors.Is(err, end)):
		return err
	case end != nil:
		return fmt.Errorf("%w: %w", err, end)
	case errors.Is(err, context.DeadlineExceeded):
		return fmt.Errorf("no answer in %v, see the timeout of the driver", b.opt.timeout)
	case errors.Is(err, context.Canceled):
		return errEnded
	}
	return err
}

// awaitConnection returns when there is a connection. The library would not send a request without one, or with
// the options of a caller's connection it would send it later.
func (b *Backend) awaitConnection(ctx context.Context) error {
	states := b.conn.StatusChanged(nats.CONNECTED, nats.CLOSED)
	defer b.conn.RemoveStatusListener(states)
	for !b.conn.IsConnected() {
		select {
		case <-states:
			if b.conn.IsClosed() {
				return nats.ErrConnectionClosed
			}
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}

func (b *Backend) notConnected(err error) error {
	return backend.NotExecuted(fmt.Errorf("nats: not connected: %w", errors.Join(b.conn.LastError(), err)))
}

// denied returns the error by which the server refused an operation on a subject since the connection was made.
func (b *Backend) denied(operation, subject string) error {
	err := b.conn.LastError()
	if errors.Is(err, nats.ErrPermissionViolation) && strings.Contains(err.Error(), operation+` to "`+subject+`"`) {
		return err
	}
	return nil
}
