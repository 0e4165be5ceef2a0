// Package queuetest has the rule that every queue.Service keeps, as code, and the checks that a Service must pass.
//
// [Reference] is the rule of one key: it says exactly what a service answers to each operation, and which events it
// sends. Its comment has the rule as a list, from which the scripts or procedures of a service can be written.
//
// [Server] is a service in memory that keeps the rule, for tests of what is built on a queue.Service.
//
// # Writing a Service
//
// Let the server keep the state that the comment of Reference lists, for each key, and take the steps of an operation
// as one atomic step: in a script, in a procedure, or under a mutex. A server that is a Go program can keep a Reference
// for each key. The Service sends one request for each operation, with its process and the fields of the operation, and
// turns the reply into an answer. Each answer has the time at which the server decided, in Now, from a clock that the
// decision was made with; also the one with ErrLost. Only Refused and ErrInvalid need no time. Of the Holder in an
// answer, Owner, Token and Metadata are required, and the others may be left out.
//
// A Service with events implements queue.Pusher, and calls the methods of queue.Events in the order in which the server
// has sent the events of a key.
//
// These are its tests:
//
//	func TestService(t *testing.T) { queuetest.Test(t, harness) }
//	func TestDifferential(t *testing.T) { queuetest.Differential(t, harness, 500) }
//
//	var harness = queuetest.Harness{
//		Open:     func(t testing.TB, events queue.Events) queue.Service { return toy.Open(url, events) },
//		Rounding: time.Millisecond,
//	}
//
// [Test] checks keys, metadata, batches and concurrent calls. [Differential] sends random sequences of operations to
// the Service and to a Reference, and compares answers and events. If they differ, it prints a sequence of a few
// operations.
package queuetest
