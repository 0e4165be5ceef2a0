package mysql_test

import (
	"bytes"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/interlock-go/lock/backend"
	"github.com/interlock-go/lock/integration/provision"
	"github.com/interlock-go/lock/integration/suite"
	"github.com/interlock-go/lock/mysqllock"
)

// TestBatchWithoutAnswer: without an answer the outcome of all renewals is unknown, and the
// next batch renews them.
func TestBatchWithoutAnswer(t *testing.T) {
	each(t, func(t *testing.T, s *provision.Server) {
		admin, _ := withApp(t, s)
		p := provision.NewProxy(t, s.Addr())
		raw, err := suite.Open(t.Context(), strings.Replace(as(s, "app", "s3cret", longTimeout), s.Addr(), p.Addr(), 1))
		if err != nil {
			t.Fatal(err)
		}
		defer raw.Close(context.Background())
		b := raw.(*mysqllock.Backend)
		for _, how := range []string{"killed", "cut", "executed"} {
			t.Run(how, func(t *testing.T) {
				all := batchOf(t, b, how, 40)
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				done := make(chan []error, 1)
				renew := func() { done <- b.RenewBatch(ctx, all) }
				var table *sql.Conn
				if how == "executed" {
					p.DropReply(func(request []byte) bool { return bytes.Contains(request, []byte("SKIP LOCKED")) })
					go renew()
				} else {
					if table, err = admin.Conn(t.Context()); err != nil {
						t.Fatal(err)
					}
					defer table.Close()
					if _, err := table.ExecContext(t.Context(), "LOCK TABLES interlock WRITE"); err != nil {
						t.Fatal(err)
					}
					go renew()
					eventually(t, "a batch that waits for the table", func() bool { return len(inRenewal(t, admin)) == 1 })
					if how == "killed" {
						exec(t, admin, fmt.Sprintf("KILL %d", inRenewal(t, admin)[0].id))
					} else {
						cancel()
					}
				}
				for i, err := range <-done {
					if !errors.Is(err, backend.ErrUncertain) || how == "cut" && !errors.Is(err, context.Canceled) {
						t.Errorf("%d: want the outcome unknown, got %v", i, err)
					}
				}
				if table != nil {
					if _, err := table.ExecContext(t.Context(), "UNLOCK TABLES"); err != nil {
						t.Fatal(err)
					}
				}
				for i, err := range b.RenewBatch(t.Context(), all) {
					if err != nil {
						t.Errorf("%d: the next batch: %v", i, err)
					}
				}
			})
		}
	})
}
