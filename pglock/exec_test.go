package pglock

import (
	"testing"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
)

// TestFatalMayFollowTheCommit: an error that ends the connection says nothing of the
// statement, whatever the language of the server's messages.
func TestFatalMayFollowTheCommit(t *testing.T) {
	pool, err := pgxpool.New(t.Context(), "postgres://127.0.0.1:1/db") // connects to nobody
	if err != nil {
		t.Fatal(err)
	}
	defer pool.Close()
	b := &Backend{pool: pool}
	for _, c := range []struct {
		severity, unlocalized string
		uncertain             bool
	}{
		{"FATAL", "FATAL", true},
		{"ВАЖНО", "FATAL", true},
		{"PANIK", "PANIC", true},
		{"FATAL", "", true},
		{"ERROR", "", false},
		{"ОШИБКА", "ERROR", false},
	} {
		err := b.explain(t.Context(), t.Context(), &pgconn.PgError{Severity: c.severity, SeverityUnlocalized: c.unlocalized, Code: "57P01"})
		if isUncertain(err) != c.uncertain {
			t.Errorf("%s (%s): want uncertain=%v, got %v", c.severity, c.unlocalized, c.uncertain, err)
		}
	}
}
