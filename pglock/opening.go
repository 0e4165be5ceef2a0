package pglock

import (
	"context"

	"github.com/jackc/pgx/v5"
)

// opening has a pool open one connection at a time. A new connection takes 40 ms of the server's processor time. If all clients
// opened all of theirs at once, a server that is short of it would complete none in time, again and again. It is a tracer
// because pgx calls that before and after each connect, in which the wait does not count.
type opening chan struct{}

var _ pgx.ConnectTracer = opening(nil)

func (o opening) TraceConnectStart(ctx context.Context, _ pgx.TraceConnectStartData) context.Context {
	select {
	case o <- struct{}{}:
	case <-ctx.Done(): // the connect fails at once
		return context.WithValue(ctx, refusedKey{}, true)
	}
	return ctx
}

func (o opening) TraceConnectEnd(ctx context.Context, _ pgx.TraceConnectEndData) {
	if ctx.Value(refusedKey{}) == nil {
		<-o
	}
}

// refusedKey is in the context of a connect that has not begun.
type refusedKey struct{}

func (opening) TraceQueryStart(ctx context.Context, _ *pgx.Conn, _ pgx.TraceQueryStartData) context.Context {
	return ctx
}

func (opening) TraceQueryEnd(context.Context, *pgx.Conn, pgx.TraceQueryEndData) {}
