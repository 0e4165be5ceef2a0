package mysql_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/interlock-go/lock/backend"
	"github.com/interlock-go/lock/integration/provision"
)

// TestInspectAbandoned: the caller of a read that takes too long does not share its result with the request, which goes on.
// (The race detector notices.)
func TestInspectAbandoned(t *testing.T) {
	each(t, func(t *testing.T, s *provision.Server) {
		b := openRaw(t, s.URL())
		admin, err := provision.MySQLPool(t, s, nil).Conn(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		defer admin.Close()
		if _, err := admin.ExecContext(t.Context(), "LOCK TABLES interlock WRITE, interlock_places WRITE"); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		defer cancel()
		if info, err := b.(backend.Inspector).Inspect(ctx, "k"); !errors.Is(err, context.DeadlineExceeded) || info.Holder != nil {
			t.Errorf("want context.DeadlineExceeded, got %+v, %v", info, err)
		}
		if _, err := admin.ExecContext(t.Context(), "UNLOCK TABLES"); err != nil {
			t.Fatal(err)
		}
		if err := b.Close(t.Context()); err != nil { // waits for the request
			t.Error(err)
		}
	})
}

// TestRenewedReaderIsListed: a renewal of a reader does not move the end that the row of the lock has, which List reads.
func TestRenewedReaderIsListed(t *testing.T) {
	each(t, func(t *testing.T, s *provision.Server) {
		b := openRaw(t, s.URL())
		admin := provision.MySQLPool(t, s, nil)
		g, err := b.TryAcquire(t.Context(), backend.Request{
			Key: "k", Owner: "0123456789abcdef0123456789abcdef", TTL: b.Capabilities().MinTTL, Share: backend.Reader,
		})
		if err == nil {
			err = g.Renew(t.Context(), time.Hour)
		}
		if err != nil {
			t.Fatal(err)
		}
		eventually(t, "the row says that the lock has expired", func() bool {
			var expired bool
			err := admin.QueryRow("SELECT expires <= TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6)) " +
				"FROM interlock WHERE name = 'lock:k'").Scan(&expired)
			return err == nil && expired
		})
		var listed []string
		if err := b.(backend.Lister).List(t.Context(), func(i backend.Info) bool { listed = append(listed, i.Name); return true }); err != nil {
			t.Fatal(err)
		}
		if len(listed) != 1 || listed[0] != "k" {
			t.Errorf("want k listed, got %q", listed)
		}
		if _, err := b.TryAcquire(t.Context(), backend.Request{
			Key: "k", Owner: "1123456789abcdef0123456789abcdef", TTL: time.Minute,
		}); !errors.Is(err, backend.ErrLocked) {
			t.Errorf("a writer beside the reader: want ErrLocked, got %v", err)
		}
	})
}
