package filelock

import (
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"strconv"
	"time"
)

// counter is the content of the file fence: the last number that was drawn, twice the last
// ticket that was granted alone, and the last ticket that was shared. The guard is for the first
// and the last. The second is written by the holder alone, after each grant and before its
// release; it is twice in the file because a reader without the guard may see half of a write.
type counter struct {
	last    uint64 // 0 if the file has no valid content
	granted uint64 // no live ticket is below it; 0 if it is not known
	shared  uint64 // all live tickets above it are exclusive
}

const (
	counterForm = "%0*d\n"
	grantedForm = "%0*d %0*d\n"
)

// readCounter reads a file that was just opened, in one system call: the last field may be missing.
func readCounter(f *os.File) (c counter) {
	var buf [4 * (numberLen + 1)]byte
	n, err := f.Read(buf[:])
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
	c.shared = field(3, '\n')
	return c
}

// counter returns the counter of a lock, the zero value if it cannot be read.
func (d *directory) counter() counter {
	f, err := d.read(fenceFile)
	if err != nil {
		return counter{}
	}
	defer f.Close()
	return readCounter(f)
}

// setGranted notes a ticket that holds the lock. Without the note its successor reads the
// directory.
func (d *directory) setGranted(number uint64) {
	f, err := d.OpenFile(fenceFile, os.O_WRONLY|nonBlock, 0)
	if err != nil {
		return
	}
	defer f.Close()
	if info, err := f.Stat(); err == nil && linksOf(info) == 1 { // as in guard.verify
		_, _ = f.WriteAt(fmt.Appendf(nil, grantedForm, numberLen, number, numberLen, number), numberLen+1)
	}
}

// setShared notes a shared ticket. An exclusive ticket of the same number does no harm.
func (g *guard) setShared(number uint64) error {
	_, err := g.fence.WriteAt(fmt.Appendf(nil, counterForm, numberLen, number), 3*(numberLen+1))
	return err
}

// draw returns the next number: above the highest that is known, and at least the clock in
// microseconds. If no ticket is alive, the number is granted alone.
func (g *guard) draw(highest uint64, alone, shared bool) (uint64, error) {
	if highest == math.MaxUint64 {
		return 0, fmt.Errorf("%s: the ticket numbers are exhausted", g.fence.Name())
	}
	next := highest + 1
	if now := time.Now().UnixMicro(); now > 0 {
		next = max(next, uint64(now))
	}
	if shared {
		if err := g.setShared(next); err != nil {
			return 0, err
		}
	}
	content := fmt.Appendf(nil, counterForm, numberLen, next)
	if alone {
		content = fmt.Appendf(content, grantedForm, numberLen, next, numberLen, next)
	}
	_, err := g.fence.WriteAt(content, 0)
	return next, err
}
