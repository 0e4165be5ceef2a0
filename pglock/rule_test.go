package pglock

import (
	"context"
	"os"
	"strconv"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/interlock-go/lock/backend/queue"
	"github.com/interlock-go/lock/backend/queue/queuetest"
)

func TestService(t *testing.T) { queuetest.Test(t, ruleHarness(t)) }

func TestDifferential(t *testing.T) {
	n := 500
	if s := os.Getenv("LOCK_TEST_SEQUENCES"); s != "" {
		n, _ = strconv.Atoi(s)
	}
	queuetest.Differential(t, ruleHarness(t), n)
}

func ruleHarness(t *testing.T) queuetest.Harness {
	url := os.Getenv("PG_URL")
	return queuetest.Harness{
		Open: func(t testing.TB, events queue.Events) queue.Service {
			cfg, err := pgxpool.ParseConfig(url)
			if err != nil {
				t.Fatal(err)
			}
			pool, err := pgxpool.NewWithConfig(context.Background(), cfg)
			if err != nil {
				t.Fatal(err)
			}
			o := defaults()
			o.prefix = strings.ReplaceAll(t.Name(), "/", "_")
			sql, err := newStatements(o.table)
			if err != nil {
				t.Fatal(err)
			}
			s := newService(pool, o, sql)
			s.ownsPool = true
			s.events = events
			if err := s.setUp(t.Context()); err != nil {
				t.Fatal(err)
			}
			if err := s.Listen(t.Context(), ""); err != nil {
				t.Fatal(err)
			}
			return s
		},
	}
}
