package filelock

import (
	"bytes"
	"encoding/json"
	"io"
	"os"
	"slices"
	"time"

	"github.com/interlock-go/lock/backend"
)

// record is a line of a ticket file. A ticket is changed by another line behind the first, when permits are granted
// and by a downgrade: the last complete line counts, so a reader never sees half of a change.
type record struct {
	Share    backend.Share `json:"share,omitzero"`
	Slots    []int         `json:"slots,omitempty"`  // of permits that were granted
	Behind   uint64        `json:"behind,omitempty"` // of a reader: the last live ticket before it that is no reader's
	Name     string        `json:"name"`             // escaped, as in directory names but never hashed
	Owner    string        `json:"owner"`
	Metadata string        `json:"metadata,omitempty"`
	PID      int           `json:"pid"`
	Host     string        `json:"host,omitempty"`
	Since    time.Time     `json:"since"`
}

// maxRecord bounds the size in bytes of a ticket that is read: another program may have made it.
const maxRecord = 64 << 10

// line returns the record as a line of a ticket.
func (r *record) line() ([]byte, error) {
	text, err := json.Marshal(r)
	return append(text, '\n'), err
}

// contender is a ticket that was read.
type contender struct {
	number  uint64
	foreign bool // another program made the ticket, or it is damaged: exclusive, and the owner is its file name
	record
}

// public returns what Inspect shows of a waiter.
func (c *contender) public() backend.Contender {
	p := backend.Contender{Owner: c.Owner, Metadata: c.Metadata, Share: c.Share}
	if !c.Since.IsZero() {
		p.Age = max(0, time.Since(c.Since))
	}
	return p
}

func (c *contender) holder() backend.Holder {
	return backend.Holder{Contender: c.public(), Token: c.number, Slots: c.Slots, Foreign: c.foreign}
}

// readTicket reads the open file of a ticket.
func readTicket(f *os.File, number uint64) contender {
	content, _ := io.ReadAll(io.LimitReader(f, maxRecord))
	lines := bytes.Split(content, []byte{'\n'})
	for _, line := range slices.Backward(lines[:len(lines)-1]) {
		c := contender{number: number}
		if json.Unmarshal(line, &c.record) == nil && c.Owner != "" && c.Share.Validate() == nil {
			return c
		}
	}
	return contender{number: number, foreign: true, record: record{Owner: ticketName(number)}}
}

// probe reads a ticket if it is alive.
func (d *directory) probe(number uint64) (c contender, alive bool, err error) {
	f, err := d.openLive(number)
	if f == nil {
		return c, false, err
	}
	defer f.Close()
	return readTicket(f, number), true, nil
}
