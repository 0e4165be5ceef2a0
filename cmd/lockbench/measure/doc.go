// Package measure compares locks by measurement: it runs the same scenarios against any
// number of targets in one run, in turns, so that a disturbance affects all of them.
//
// # Scenarios
//
// Before each measurement the raw round trip of the target is measured (the Ping of its
// client). Times are reported as they are and as multiples of it. With an injected delay
// the multiples count round trips; without a delay they are the cost relative to the
// fastest request of the service.
//
//   - Uncontended: one worker acquires and releases one lock; the time of Lock and Unlock
//     together.
//   - Contended: workers of several clients, each as independent as a process, acquire one
//     lock, hold it and pause. The hand-off is the time from one worker's call of Unlock to
//     the return of the Lock of the next worker, if that is another one. Unlike the
//     throughput, no choice of hold and pause can shorten it.
//   - Idle: workers wait for a lock that is held throughout; their cost for the server.
//
// Scenarios of growth measure a cost over a number N, once for each N, to show that it does
// not depend on N: [Waiters], [IdleProcesses], [Dead], [Names] and [Outage]. The cycles of
// Waiters begin when all workers are in the queue. Unlike those of the scenarios above,
// their figures are compared with each other: those of the least N are the unit.
//
// # Percentiles
//
// A contended scenario is a closed loop: a worker that waits sends no other request. Its
// waits are those of that number of workers, not of requests that arrive at a given rate;
// read as the latter they would look too short (coordinated omission). Reports are
// therefore based on the hand-off, which is measured for each change of holder, and call
// the wait "wait, closed loop".
package measure
