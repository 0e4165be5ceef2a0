// Package queuetest has the rule that every queue.Service keeps, as code, and the checks that a Service must pass.
//
// [Reference] is the rule of one key: it says exactly what a service answers to each operation, and which events it
// sends. Its comment has the rule as a list, from which the scripts or procedures of a service can be written.
//
// [Server] is a service in memory that keeps the rule, for tests of what is built on a queue.Service.
//
// [Differential] compares a Service with the Reference: it sends random sequences of operations to both.
package queuetest
