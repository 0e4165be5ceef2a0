// Package placestest has a places.Service in memory that is the reference for what each method does, for tests of what is
// built on one, and the checks that every Service must pass.
//
//	func TestService(t *testing.T) { placestest.Test(t, harness) }
//
// [Server] is the service, and [Server.Client] makes the Service of a process, whose requests can be lost, or come late.
// It lives by the clock of package time, so that tests run in virtual time (testing/synctest).
package placestest
