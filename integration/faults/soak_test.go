package faults_test

import (
	"flag"
	"math/rand/v2"
	"os"
	"path/filepath"
	"regexp"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/interlock-go/lock/integration/faults"
)

var (
	soak   = flag.Duration("faults.soak", 0, "how long TestSoak lasts; 0: it is skipped")
	enough = flag.Int("faults.enough", 0, "acquisitions under faults after which a service that had each of its faults needs no more; 0: as many as there is time for")
	table  = flag.String("faults.table", "", "file of which TestSoak replaces the services that it has run; the summary in faults.md beside it follows")
)

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
	if err := sum.WriteFile(*table); err != nil {
		t.Fatal(err)
	}
	page := filepath.Join(filepath.Dir(*table), "faults.md")
	all, err := faults.ReadTable(*table)
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(page, summary.ReplaceAll(text, []byte(all.Summary())), 0o644); err != nil {
		t.Fatal(err)
	}
}

// summary is the table of docs/faults.md.
var summary = regexp.MustCompile(`(?m)^\| backend .*\n(\|.*\n)+`)

// The page has the summary of the table.
func TestPage(t *testing.T) {
	all, err := faults.ReadTable("../../docs/faults.csv")
	if err != nil {
		t.Fatal(err)
	}
	page, err := os.ReadFile("../../docs/faults.md")
	if err != nil {
		t.Fatal(err)
	}
	if got := string(summary.Find(page)); got != all.Summary() {
		t.Errorf("the table of docs/faults.md is not the summary of docs/faults.csv: want\n%s\ngot\n%s", all.Summary(), got)
	}
}
