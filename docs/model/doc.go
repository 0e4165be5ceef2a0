// Package model holds small models of two protocols whose correctness does not follow
// from reading them: the quorum of Redlock, and the admission of shares by the
// transactions of mysqllock. The tests search every interleaving of each
// within bounds. README.md says how to read them and what they leave out.
package model
