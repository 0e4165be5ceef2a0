// Package model holds a small model of a protocol whose correctness does not follow from
// reading it: the quorum of Redlock. The tests search every interleaving within bounds.
// README.md says how to read it and what it leaves out.
package model
