// Package faults runs clients of a lock against a real service during faults of the
// service, of the network and of the clients' processes, and judges what the clients saw.
//
// A run has one service, one kind of fault and a seed. Its sessions, each behind
// its own proxies, lock, try, wait, hold, extend, write to a resource that checks tokens,
// and unlock, while faults begin and end. After the last fault the service must serve every
// client again. A model checker (conformance.History) and the rules of check.go judge the
// history.
//
// The seed decides the faults and operations and their order. It does not decide how the
// operating system schedules processes, so a failure may need several runs.
package faults
