// Package bench measures this library beside its peers: the same scenarios, in the
// same run, on the same servers. Run
//
//	make performance
//
// to measure and to write docs/performance.md, or the benchmark Peers of one service
// alone: go test -run '^$' -bench Peers/Redis ./bench.
//
// Each peer is used as its own documentation says, with a TTL of 30 s and renewal
// where it has any. A peer that must be told how often to ask is measured with the
// settings named in its target.
package bench
