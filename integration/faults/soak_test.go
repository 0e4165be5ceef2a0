package faults_test

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/interlock-go/lock/integration/faults"
)

var (
	soak   = flag.Duration("faults.soak", 0, "how long TestSoak lasts; 0: it is skipped")
	enough = flag.Int("faults.enough", 0, "acquisitions under faults after which a service that had each of its faults needs no more; 0: as many as there is time for")
	table  = flag.String("faults.table", "", "file to which TestSoak writes what it has shown")
)

const soakText = `# What faults have shown

Written by a soak of %v on %s (%s), with %d services at a time: ` + "`make soak`" + ` repeats it, ` + "`make soak SOAK=1h ENOUGH=100000`" + ` gives each up to so many acquisitions. See
[integration/faults](../integration/faults/doc.go) for what a run is, and [0014](adr/0014-fault-runner.md) for why it is as it is.

Clients work for one part of %d of the time, all of them together, so that the machine is not the fault: acquisitions are no measure of speed. In each of them one campaigns for a key (elect.Campaign), as a leader that knows of the end of its term from its context alone.

A run has one backend and one kind of fault, which strikes again and again for %v, for up to 1.5 TTLs (of 2 s) each time. *Leases lost* are those whose loss was reported to the holder, or whose release was not acknowledged in
time; *stale writes* are those of former holders, which a resource that checks tokens refused. *Violations of exclusion* are pairs of holders that trust their leases at the same time, histories that a model checker refuses, and holders
that the resource refuses. *Longest unavailability* is the longest time without a grant of any key, the fault included. *Last key free after* counts from the end of the last client. The seed was %d.

What is left in the table of etcd with three nodes under *leader frozen for long* is etcd's own: a leader that was stopped for longer than a lease has left may revoke it when it goes on, though its successor has renewed it (3.7.3; before it
proposes that, it looks whether it still leads only if its clock has not ticked lately, and it has). Watches notify the holders of it some milliseconds late. A fencing token protects from it.

What is left in the table of Redis behind Sentinel without WAIT, and of the masters of a cluster that are killed or frozen, is Redis's own: it replicates after it has answered, so that a replica can be promoted without a grant and gives the lock away once more, and a master that was killed and comes back before it is demoted serves the clients that still reach it
([backends/redis.md](backends/redis.md)). With WAIT and one replica nothing is known to be left. A fencing token protects from it.

`

const (
	soakAtOnce = 4
	soakShare  = 3 // of the time, in which its clients work
)

// TestSoak makes runs of all faults on all services, in random order, and writes a table.
func TestSoak(t *testing.T) {
	if *soak == 0 {
		t.Skip("it takes long: make soak")
	}
	const length = 10 * time.Second
	first := *seed
	if first == 0 {
		first = rand.Uint64N(1_000_000)
	}
	t.Logf("the seed is %d", first)
	var sum faults.Table
	var mu sync.Mutex
	for _, sv := range services { // in the order of the list
		sum.Expect(sv.name)
	}
	begun := time.Now()
	turns := make(chan struct{}, soakAtOnce)
	var waiting atomic.Int64 // services that had no turn yet
	waiting.Store(int64(len(services)))
	t.Run("all", func(t *testing.T) {
		for i, sv := range services {
			t.Run(sv.name, func(t *testing.T) {
				t.Parallel()
				turns <- struct{}{}
				t.Cleanup(func() { <-turns }) // its servers have ended then
				left := time.Duration(waiting.Add(-1) + 1)
				over := time.Now().Add((*soak - time.Since(begun)) / left * min(left, soakAtOnce))
				s := sv.start(t)
				s.Name, s.Share = sv.name, soakShare
				dice := rand.New(rand.NewPCG(first, uint64(i)))
				all := s.All()
				got := 0
				for n := 0; time.Now().Before(over) && (*enough == 0 || got < *enough || n < len(all)); n++ {
					if n%len(all) == 0 {
						dice.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
					}
					f := all[n%len(all)]
					t.Run(f.Name, func(t *testing.T) {
						res := s.Run(t, f, dice.Uint64N(1_000_000), length)
						if f.Strike != nil {
							got += res.Acquisitions
						}
						mu.Lock()
						sum.Add(res)
						mu.Unlock()
						res.Report(t, "TestFaults", *dir)
					})
				}
			})
		}
	})
	if *table == "" {
		return
	}
	var b strings.Builder
	fmt.Fprintf(&b, soakText, time.Since(begun).Round(time.Second), begun.UTC().Format("2 January 2006"), machine(), soakAtOnce, soakShare, length, first)
	if err := sum.Markdown(&b); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(*table, []byte(b.String()), 0o600); err != nil {
		t.Fatal(err)
	}
}

func machine() string { return fmt.Sprintf("%d processors", runtime.NumCPU()) }
