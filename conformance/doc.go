// Package conformance is the contract of package backend, executable: a suite that
// every driver must pass.
//
// # Running it
//
// A driver's test needs one function, which opens an independent client of the
// service under test:
//
//	func TestMain(m *testing.M) {
//		conformance.WorkerMain() // only if the harness has a Worker
//		os.Exit(m.Run())
//	}
//
//	func TestConformance(t *testing.T) {
//		conformance.Run(t, conformance.Harness{
//			Name: "toy",
//			Open: func(ctx context.Context) (backend.Backend, error) { return toy.New(addr), nil },
//		})
//	}
//
// Each case is a subtest, named by the harness and the id of the case, which never
// changes: go test -run 'TestConformance/toy/release/18'. Without package testing, as in
// "lockbench conformance", Check does the same and returns the Report.
//
// All other fields of Harness are hooks, each of which makes more cases possible: a
// link that can be cut (package conformancelink), a server that can be stopped, a process
// that can be killed.
// Begin with none. Add those that the service permits, and then RequireHooks, so that
// none is lost unnoticed. A case that can never run there is named by Except, with the
// reason.
//
// # Reading the report
//
// A case has one of four outcomes:
//
//   - passed.
//   - failed: the text begins with the clause of the contract, and says what was
//     expected and what happened.
//   - not declared: the driver's Capabilities, or the optional interfaces that it
//     lacks, do not claim the behaviour. That is no fault; but it must be refused where
//     it is asked for, with an error that matches errors.ErrUnsupported, and the suite
//     checks that it is.
//   - not run: the harness has no hook for it, so nothing is known. This concerns declared
//     behaviour too: only the hooks RestartServer and Failover put the stronger kinds of
//     fencing to the test.
//
// What a driver declares is mandatory: the way to make a case go away is to declare
// less.
//
// # Times
//
// TTLs are about a second, or the driver's MinTTL if that is longer. What must happen
// "at once" has Harness.Slack to do so, because machines are busy; TTLs in those cases
// are minutes, so that nothing that comes in time came by expiry. Exclusion, and the
// signal of a loss before a successor's grant, have no tolerance. Most cases run at the
// same time; those that measure or disturb the whole service run alone, afterwards.
//
// The suite is tested itself, by backends that are each broken in one way and must
// fail the cases that name it, and no others.
package conformance
