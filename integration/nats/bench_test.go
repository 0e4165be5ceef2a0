package nats_test

import (
	"fmt"
	"testing"

	"github.com/interlock-go/lock/integration/provision"
	"github.com/interlock-go/lock/integration/suite"
)

// BenchmarkCycle measures contended cycles of processes with one waiter each, and the messages that they send.
func BenchmarkCycle(b *testing.B) {
	s := provision.NewNATS(b, provision.NATS2, counted(b))
	count := counter(s)
	for _, processes := range []int{1, 4, 16} {
		b.Run(fmt.Sprint(processes, " processes"), func(b *testing.B) {
			suite.Cycles(b, s.URL(), b.Name(), processes, processes+1, func() (int64, error) { return count(b.Context()) })
		})
	}
}
