package postgres_test

import (
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/interlock-go/lock/backend/queue"
	"github.com/interlock-go/lock/backend/queue/queuetest"
	"github.com/interlock-go/lock/integration/postgres/pgtest"
	"github.com/interlock-go/lock/integration/provision"
	"github.com/interlock-go/lock/pglock"
)

// TestService and TestDifferential show that the functions keep the rule of queuetest.
func TestService(t *testing.T) {
	onEach(t, func(t *testing.T, s *provision.Server, _ *pgxpool.Pool) { queuetest.Test(t, ruleHarness(t, s)) })
}

// LOCK_TEST_SEQUENCES is the number of sequences, about 45 operations each.
func TestDifferential(t *testing.T) {
	n := sequences(t)
	onEach(t, func(t *testing.T, s *provision.Server, _ *pgxpool.Pool) {
		queuetest.Differential(t, ruleHarness(t, s), n)
	})
}

// TestDifferentialAtLevels: at the stricter levels a statement that waited for a row fails, and is sent again.
func TestDifferentialAtLevels(t *testing.T) {
	n := sequences(t) / 10
	for _, level := range levels[1:] {
		t.Run(level, func(t *testing.T) {
			t.Parallel()
			s := provision.NewPostgres(t, provision.AnyPostgres, provision.PostgresUnsynced, "default_transaction_isolation="+level)
			queuetest.Differential(t, ruleHarness(t, s), n)
		})
	}
}

func sequences(t *testing.T) int {
	t.Helper()
	s := os.Getenv("LOCK_TEST_SEQUENCES")
	if s == "" {
		return 300
	}
	n, err := strconv.Atoi(s)
	if err != nil {
		t.Fatalf("LOCK_TEST_SEQUENCES: %v", err)
	}
	return n
}

// ruleHarness has a time limit for requests that a busy machine keeps too: each connection compiles the functions at its
// first call, and all sequences begin at the same time.
func ruleHarness(t *testing.T, s *provision.Server) queuetest.Harness {
	prefix := pglock.WithPrefix(strings.NewReplacer("/", "_", " ", "_").Replace(t.Name()))
	return queuetest.Harness{Open: func(t testing.TB, events queue.Events) queue.Service {
		service, err := pglock.NewService(t.Context(), poolOf(t, pgtest.With(s, nil), 4), events, prefix, pglock.WithTimeout(time.Minute))
		must(t, err)
		must(t, service.(queue.Pusher).Listen(t.Context(), ""))
		return service
	}}
}
