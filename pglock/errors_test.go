package pglock

import (
	"testing"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/interlock-go/lock/backend"
)

// TestFatalMayFollowTheCommit: after an error that ends the connection the outcome is
// unknown, also if the server's messages are localized.
func TestFatalMayFollowTheCommit(t *testing.T) {
	pool, err := pgxpool.New(t.Context(), "postgres://127.0.0.1:1/db") // never connects
	if err != nil {
		t.Fatal(err)
	}
	defer pool.Close()
	b := &Backend{pool: pool}
	for _, c := range []struct {
		severity, unlocalized string
		unknown               bool
	}{
		{"FATAL", "FATAL", true},
		{"ВАЖНО", "FATAL", true},
		{"PANIK", "PANIC", true},
		{"FATAL", "", true},
		{"ERROR", "", false},
		{"ОШИБКА", "ERROR", false},
	} {
		err := b.explain(t.Context(), t.Context(), &pgconn.PgError{Severity: c.severity, SeverityUnlocalized: c.unlocalized, Code: "57P01"})
		if backend.OutcomeUnknown(err) != c.unknown {
			t.Errorf("%s (%s): want outcome unknown: %v, got %v", c.severity, c.unlocalized, c.unknown, err)
		}
	}
}
