package filelock

import (
	"encoding/json"
	"io"
	"os"
	"strings"
	"time"

	"github.com/interlock-go/lock/backend"
)

// record is the content of a ticket file. Two fields change in place: Mode by a downgrade, and
// Slots when permits are granted. They are first, so their bytes are at fixed offsets. A writer
// replaces single bytes, so a reader without the guard never sees half of a mode.
type record struct {
	// Mode is one of the modes below. Earlier versions have none, and are exclusive.
	Mode string `json:"mode,omitempty"`
	// Slots has a byte for each permit of the capacity. As many as Weight are slotTaken once the
	// ticket was granted; before that it has no slots.
	Slots    string    `json:"slots,omitempty"`
	Weight   int       `json:"weight,omitempty"` // of permits
	Behind   uint64    `json:"behind,omitempty"` // of a reader: the last live exclusive ticket before it, when it was issued
	Name     string    `json:"name"`             // escaped, as in directory names but never hashed
	Owner    string    `json:"owner"`
	Metadata string    `json:"metadata,omitempty"`
	PID      int       `json:"pid"`
	Host     string    `json:"host,omitempty"`
	Since    time.Time `json:"since"`
}

const (
	modeWrite   = "w"
	modeRead    = "r"
	modePermits = "p"

	modeAt  = len(`{"mode":"`)
	slotsAt = len(`{"mode":"p","slots":"`)

	slotFree, slotTaken = '-', '#'
)

// maxRecord bounds the size in bytes of a ticket that is read: another program may have made it.
const maxRecord = 16 << 10

// setShare sets what the record says of a share: the ticket that a reader waits for, and the slots
// of permits that are granted.
func (r *record) setShare(s backend.Share, p place) {
	switch {
	case s.Exclusive():
		r.Mode = modeWrite
	case s.Capacity == 0:
		r.Mode, r.Behind = modeRead, p.before
	default:
		r.Mode, r.Weight, r.Slots = modePermits, s.Weight, slotText(s.Capacity, p.slots)
	}
}

// share returns the share of a ticket. What it does not know is exclusive.
func (r record) share() backend.Share {
	switch r.Mode {
	case modeRead:
		return backend.Reader
	case modePermits:
		if s := (backend.Share{Weight: r.Weight, Capacity: len(r.Slots)}); s.Capacity > 0 && s.Validate() == nil {
			return s
		}
	}
	return backend.Share{}
}

// slots returns the slots of a ticket that was granted permits, else nil.
func (r record) slots() (slots []int) {
	for i := range len(r.Slots) {
		if r.Slots[i] == slotTaken {
			slots = append(slots, i)
		}
	}
	if len(slots) != r.Weight { // also while they are being written
		return nil
	}
	return slots
}

func slotText(capacity int, slots []int) string {
	text := []byte(strings.Repeat(string(slotFree), capacity))
	for _, i := range slots {
		text[i] = slotTaken
	}
	return string(text)
}

// contender is a ticket that was read.
type contender struct {
	number  uint64
	foreign bool // another program made the ticket, or it is damaged; the owner is its file name
	record
}

// public returns what Inspect shows of a waiter.
func (c contender) public() backend.Contender {
	p := backend.Contender{Owner: c.Owner, Metadata: c.Metadata, Share: c.share()}
	if !c.Since.IsZero() {
		p.Age = max(0, time.Since(c.Since))
	}
	return p
}

func (c contender) holder() backend.Holder {
	return backend.Holder{Contender: c.public(), Token: c.number, Slots: c.slots(), Foreign: c.foreign}
}

// readTicket reads the open file of a ticket.
func readTicket(f *os.File, number uint64) contender {
	c := contender{number: number}
	content, err := io.ReadAll(io.LimitReader(f, maxRecord))
	if err != nil || json.Unmarshal(content, &c.record) != nil || c.Owner == "" {
		c.record, c.foreign = record{Owner: ticketName(number)}, true
	}
	return c
}

// holder returns the holder of a ticket, also if it has just ended.
func (d *directory) holder(number uint64) backend.Holder {
	f, err := d.read(ticketName(number))
	if err != nil {
		return contender{number: number, foreign: true, record: record{Owner: ticketName(number)}}.holder()
	}
	defer f.Close()
	return readTicket(f, number).holder()
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
