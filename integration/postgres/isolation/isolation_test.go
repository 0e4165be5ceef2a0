package isolation_test

import (
	"testing"

	"github.com/interlock-go/lock/conformance"
	"github.com/interlock-go/lock/integration/postgres/pgtest"
	"github.com/interlock-go/lock/integration/provision"
	"github.com/interlock-go/lock/integration/suite"
)

// TestConformance runs the whole suite at the two stricter isolation levels.
func TestConformance(t *testing.T) {
	provision.LeaveOut(t, "isolation levels")
	for _, level := range []string{"repeatable read", "serializable"} {
		t.Run(level, func(t *testing.T) {
			s := provision.NewPostgres(t, provision.Postgres15, provision.PostgresUnsynced, "default_transaction_isolation="+level)
			h := pgtest.Harness(t, s, s, pgtest.Admin(t, s), nil)
			h.Name += " " + level
			h.OwnGoroutines = suite.OwnGoroutines
			h.ClockWorker = provision.ClockWorker(t, conformance.Self(pgtest.With(s, nil)))
			conformance.Run(t, h, conformance.RequireHooks(),
				conformance.Except("exclusion/02-foreign-holder", "only this driver writes the table"),
				conformance.Except("shared/43-foreign-holder", "only this driver writes the table"))
		})
	}
}
