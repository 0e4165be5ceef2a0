package postgres_test

import (
	"context"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/interlock-go/lock/conformance"
	"github.com/interlock-go/lock/integration/postgres/pgtest"
	"github.com/interlock-go/lock/integration/provision"
	"github.com/interlock-go/lock/integration/suite"
)

func TestConformance(t *testing.T) {
	for _, flavour := range provision.PostgresFlavours() {
		t.Run(flavour, func(t *testing.T) {
			s := provision.NewPostgres(t, flavour, provision.PostgresUnsynced)
			h := pgtest.Harness(t, s, s, pgtest.Admin(t, s), nil)
			h.OwnGoroutines = suite.OwnGoroutines
			h.ClockWorker = provision.ClockWorker(t, conformance.Self(pgtest.With(s, nil)))
			conformance.Run(t, h, conformance.RequireHooks(), suite.Keep(t),
				conformance.Except("exclusion/02-foreign-holder", "only this driver writes the table"),
				conformance.Except("shared/43-foreign-holder", "only this driver writes the table"))
		})
	}
}

// TestConformanceListenAlways runs the cases of breaks, and of what an idle client costs, with
// a process that listens from the beginning.
func TestConformanceListenAlways(t *testing.T) {
	s := provision.NewPostgres(t, provision.AnyPostgres, provision.PostgresUnsynced)
	h := pgtest.Harness(t, s, s, pgtest.Admin(t, s), map[string]string{"listen_always": "true"})
	h.Name += " listen_always"
	h.OwnGoroutines = suite.OwnGoroutines
	conformance.Run(t, h, conformance.Only("^(capabilities|waiting/13|cancellation/15|release|lifecycle/37)"),
		conformance.OnReport(func(r *conformance.Report) {
			for _, c := range r.Results { // none if -run selects other cases
				if c.ID == "release/20-break-pushed" && c.Status != conformance.Passed {
					t.Errorf("%s: want it passed, got %s: %s", c.ID, c.Status, c.Reason)
				}
			}
		}))
}

// TestConformanceVariants runs the cases that the kind of connection could change.
func TestConformanceVariants(t *testing.T) {
	s := provision.NewPostgres(t, provision.Postgres15, provision.PostgresUnsynced)
	admin := pgtest.Admin(t, s)
	for name, params := range map[string]map[string]string{
		"pool of one": {"pool_size": "1"},
		"no listener": {"listen": "false"},
	} {
		t.Run(name, func(t *testing.T) {
			h := pgtest.Harness(t, s, s, admin, params)
			h.Name += " " + name
			if name == "no listener" {
				h.Budget = pgtest.Polling
			}
			conformance.Run(t, h, conformance.Only(pgtest.Some))
		})
	}
}

func setLevel(ctx context.Context, t *testing.T, admin *pgxpool.Pool, level string) {
	t.Helper()
	if _, err := admin.Exec(ctx, "ALTER DATABASE postgres SET default_transaction_isolation = '"+level+"'"); err != nil {
		t.Fatal(err)
	}
}

func TestConformanceLocalHandOff(t *testing.T) {
	provision.LeaveOut(t, "local hand-off")
	s := provision.NewPostgres(t, provision.Postgres15, provision.PostgresUnsynced)
	conformance.Run(t, pgtest.Harness(t, s, s, pgtest.Admin(t, s), nil), suite.HandOff()...)
}

func TestConformanceCrowd(t *testing.T) {
	provision.LeaveOut(t, "ten thousand readers")
	s, admin := server(t)
	conformance.Run(t, pgtest.Harness(t, s, s, admin, nil), suite.Crowd()...)
}
