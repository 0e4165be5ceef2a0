package postgres_test

import (
	"testing"
	"time"

	"github.com/interlock-go/lock/integration/postgres/pgtest"
	"github.com/interlock-go/lock/integration/provision"
)

// BenchmarkRaw updates one row by its key and commits: the cost of the server itself, for
// comparison with BenchmarkUncontended. The table is made by pgtest.Admin.
func BenchmarkRaw(b *testing.B) {
	s := provision.NewPostgres(b, provision.Postgres15)
	admin := pgtest.Admin(b, s)
	if _, err := admin.Exec(b.Context(), "INSERT INTO guarded VALUES ('raw', 0)"); err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
		if _, err := admin.Exec(b.Context(), "UPDATE guarded SET token = token + 1 WHERE name = 'raw'"); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkUncontended acquires and releases a free lock: two transactions.
func BenchmarkUncontended(b *testing.B) {
	s := provision.NewPostgres(b, provision.Postgres15)
	l := open(b, pgtest.With(s, nil))
	for b.Loop() {
		g, err := l.TryAcquire(b.Context(), request("k", 10*time.Second))
		if err == nil {
			err = g.Release(b.Context())
		}
		if err != nil {
			b.Fatal(err)
		}
	}
}
