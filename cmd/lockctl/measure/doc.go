// Package measure measures locks side by side: the same scenarios against any
// number of targets in one run, in turns, so that what disturbs one disturbs all.
//
// # What is measured
//
// Before each measurement the target's raw round trip is measured (its client's
// Ping). Times are reported as they are and as multiples of it: with an injected
// delay that counts round trips, without one it is the cost beside the least that
// the service can do.
//
//   - Uncontended: one worker takes and frees one lock; the time of Lock and Unlock
//     together.
//   - Contended: workers of several clients, each as independent as a process of its
//     own, take one lock, hold it and pause. The hand-off is the time from one
//     worker's call of Unlock to the return of the Lock of the next, if that is
//     another one: no choice of hold and pause can shorten it, unlike a throughput.
//   - Idle: workers wait for a lock that is held throughout; what they cost the
//     server.
//
// # What the percentiles mean
//
// A contended scenario is a closed loop: a worker that waits does not ask again,
// so its waits are those of that many workers and not of requests that arrive at
// a given rate; read as the latter they would look better than they are
// (coordinated omission). Reports therefore rest on the hand-off, which is measured
// for each change of holder whoever waits, and call the wait "wait, closed loop".
package measure
