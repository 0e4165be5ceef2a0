package filelock

import (
	"errors"
	"fmt"
	"io"
	"math"
	"strconv"
	"time"
)

// counter is the content of the file fence: the last number that was drawn, and twice the last ticket that was
// granted alone. The guard is for the first. The second is written by the holder alone, after each grant and before
// its release; it is twice in the file because a reader without the guard may see half of a write.
type counter struct {
	last    uint64 // 0 if the file has no valid content
	granted uint64 // no live ticket is below it; 0 if it is not known
}

const (
	counterForm = "%0*d\n"
	grantedForm = "%0*d %0*d\n"
)

// readCounter reads a counter in one system call: the last fields may be missing.
func readCounter(f io.ReaderAt) (c counter) {
	var buf [3 * (numberLen + 1)]byte
	n, err := f.ReadAt(buf[:], 0)
	if err != nil && !errors.Is(err, io.EOF) {
		return c
	}
	field := func(i int, end byte) uint64 {
		at := i * (numberLen + 1)
		if n <= at+numberLen || buf[at+numberLen] != end {
			return 0 // such as in a new, empty file
		}
		v, err := strconv.ParseUint(string(buf[at:at+numberLen]), 10, 64)
		if err != nil {
			return 0
		}
		return v
	}
	c.last = field(0, '\n')
	if v := field(1, ' '); v == field(2, '\n') {
		c.granted = v
	}
	return c
}

func (d *directory) counter() counter { return readCounter(d.fence) }

// setGranted notes a ticket that holds the lock. Without the note its successor reads the directory.
func (d *directory) setGranted(number uint64) {
	_, _ = d.fence.WriteAt(fmt.Appendf(nil, grantedForm, numberLen, number, numberLen, number), numberLen+1)
}

// draw returns the next number: above the highest that is known, and at least the clock in microseconds. If no ticket
// is alive, the number is granted alone.
func (g *guard) draw(highest uint64, alone bool) (uint64, error) {
	if highest == math.MaxUint64 {
		return 0, fmt.Errorf("%s: the ticket numbers are exhausted", g.fence.Name())
	}
	next := highest + 1
	if now := time.Now().UnixMicro(); now > 0 {
		next = max(next, uint64(now))
	}
	content := fmt.Appendf(nil, counterForm, numberLen, next)
	if alone {
		content = fmt.Appendf(content, grantedForm, numberLen, next, numberLen, next)
	}
	_, err := g.fence.WriteAt(content, 0)
	return next, err
}
