// Package faults runs clients of a lock against a real service while faults happen
// to it, to the network between and to the clients' own processes, and judges
// what the clients saw.
//
// A run has one service, one kind of fault and a seed. Its sessions, each behind
// proxies of its own, lock, try, wait, hold, extend, write to a resource that checks
// tokens, and unlock, while faults come and go; then all is healed, and it is
// looked whether the service serves again, everybody. What happened is judged by
// a model checker (conformance.History) and by the plain rules of check.go.
//
// The seed decides what happens and in which order. It does not decide when the
// operating system runs whom, so that a failure may need several tries.
package faults
