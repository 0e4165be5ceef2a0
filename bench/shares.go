package bench

import (
	"errors"
	"io"
	"math"
	"time"

	"github.com/interlock-go/lock/cmd/lockbench/measure"
)

// delay is injected in each direction to count round trips.
const delay = 2 * time.Millisecond

// The load of BenchmarkShares.
const (
	shareClients = 4
	shareReaders = 64
	sharePermits = 8
	permitHold   = 50 * time.Millisecond
	readerHold   = 500 * time.Millisecond // 128 read locks a second, so that no service is the bottleneck
)

// Shares has the figures of read locks and permits of one lock. What was not measured is NaN.
type Shares struct {
	Name string
	// In round trips of the service with a delay.
	Alone, Readers, Writers, Permits float64
	// Without a delay. Writer is in holds of the readers.
	InUse, Jain, Writer float64
}

// Far returns the cells of the table of latencies.
func (s Shares) Far() []string {
	return []string{formatFigure(s.Alone), formatFigure(s.Readers), formatFigure(s.Writers), formatFigure(s.Permits)}
}

// Near returns the cells of the table of use and fairness, nil if nothing of it was measured.
func (s Shares) Near() []string {
	if math.IsNaN(s.InUse) {
		return nil
	}
	return []string{formatFigure(s.InUse), formatFigure(s.Jain), formatFigure(s.Writer)}
}

// SharesDocument writes figures as docs/performance-shares.md. It returns an error if there are none.
func SharesDocument(w io.Writer, rows []Shares) error {
	if len(rows) == 0 {
		return errors.New("bench: no shares were measured")
	}
	return page(w, "performance-shares.md.tmpl", struct {
		Machine                       string
		Delay, PermitHold, ReaderHold time.Duration
		Clients, Workers, Capacity    int
		Rows                          []Shares
	}{machine(measure.ThisMachine(), time.Now()), delay, permitHold, readerHold, shareClients, shareReaders, sharePermits, rows})
}
