// Package bench compares this library with its peers: the same scenarios in the same run
// on the same servers. Run
//
//	make performance
//
// to measure and to write docs/performance.md and the pages beside it, or a benchmark of one
// service alone: go test -run '^$' -bench Peers/Redis ./bench.
//
// Each peer is used as its documentation says, with a TTL of 30 s, and with renewal if it
// has any. If a peer needs a polling interval, the name of its target has it.
package bench
