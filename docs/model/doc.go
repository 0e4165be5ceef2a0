// Package model holds small models of the two protocols of redislock whose
// correctness does not follow from reading them: the hand-off through one server,
// and the quorum over several. The tests search every interleaving of each within
// bounds. README.md says how to read them and what they leave out.
package model
