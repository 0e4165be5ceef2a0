package backend

import (
	"encoding/json"
	"errors"
	"fmt"
)

// MaxPermits is the greatest capacity of a semaphore.
const MaxPermits = 1024

// Share is the part of a key that a request asks for. The zero Share is the whole key: the
// request is exclusive. Every key has one queue for all shares. Its head is granted as soon as
// it fits beside the holders, see [Share.Fits]. A request behind one that cannot be granted waits,
// also if it would fit.
type Share struct {
	// Weight is the number of permits, from 1 to Capacity; 1 for a reader.
	Weight int `json:"weight,omitempty"`
	// Capacity is the number of permits that can be held at once, at most MaxPermits. It is
	// zero for readers, whose number is not limited.
	Capacity int `json:"capacity,omitempty"`
}

// Reader is the share of a reader.
var Reader = Share{Weight: 1}

// Exclusive reports whether s is the whole key.
func (s Share) Exclusive() bool { return s == Share{} }

// String returns "exclusive", "read", or permits as in "2/10".
func (s Share) String() string {
	switch s {
	case Share{}:
		return "exclusive"
	case Reader:
		return "read"
	}
	return fmt.Sprintf("%d/%d", s.Weight, s.Capacity)
}

// Mode is the kind of share: "exclusive", "read" or "permits".
func (s Share) Mode() string {
	if s == (Share{}) || s == Reader {
		return s.String()
	}
	return "permits"
}

// MarshalJSON adds the mode to the fields.
func (s Share) MarshalJSON() ([]byte, error) {
	type fields Share
	return json.Marshal(struct {
		Mode string `json:"mode"`
		fields
	}{s.Mode(), fields(s)})
}

// Includes reports whether a holder of s also holds o. A holder of the whole key may read, but
// has no slots of a semaphore.
func (s Share) Includes(o Share) bool {
	if s.Exclusive() || o.Exclusive() {
		return s.Exclusive() && (o.Exclusive() || o == Reader)
	}
	return s.Capacity == o.Capacity && s.Weight >= o.Weight
}

// Validate returns an ErrInvalid for a share that can never be granted.
func (s Share) Validate() error {
	switch {
	case s == (Share{}) || s == Reader:
		return nil
	case s.Capacity < 1 || s.Capacity > MaxPermits:
		return Invalid("capacity", s.Capacity, fmt.Sprintf("1 to %d permits", MaxPermits))
	case s.Weight < 1 || s.Weight > s.Capacity:
		return Invalid("permits", s.Weight, fmt.Sprintf("1 to %d, the capacity", s.Capacity))
	}
	return nil
}

// FreeSlots returns the lowest slots that are free for s, as many as its weight, while the holders
// have those in taken. It returns fewer if fewer are free, which is so only for a share that does
// not fit, and nil for a share without permits. It ignores values in taken that are no slots of
// the capacity: another program may have written them.
func (s Share) FreeSlots(taken []int) []int {
	if s.Capacity == 0 {
		return nil
	}
	used := make([]bool, s.Capacity)
	for _, n := range taken {
		if n >= 0 && n < s.Capacity {
			used[n] = true
		}
	}
	var slots []int
	for n := 0; n < s.Capacity && len(slots) < s.Weight; n++ {
		if !used[n] {
			slots = append(slots, n)
		}
	}
	return slots
}

// Fits reports whether s can hold the key beside held. The whole key, readers and permits exclude
// each other. Permits fit if they and those held are together at most the capacity of s; those held
// may have another capacity. One share with the weights of several stands for them in held.
func (s Share) Fits(held []Share) bool {
	weight := s.Weight
	for _, h := range held {
		if s.Exclusive() || h.Exclusive() || (s.Capacity == 0) != (h.Capacity == 0) {
			return false
		}
		weight += h.Weight
	}
	return s.Capacity == 0 || weight <= s.Capacity
}

// Admitted returns how many of the first of a queue can hold the key together.
func Admitted(queue []Share) int {
	var a Admission
	for i, s := range queue {
		if !a.Next(s) {
			return i
		}
	}
	return len(queue)
}

// Admission finds those at the head of a queue that hold the key together, as [Admitted] does, for
// a caller that has no slice of shares. The zero Admission is that of a free key.
type Admission struct {
	held Share // one with the weights of all
	some bool
	full bool
}

// Next reports whether the next request of the queue holds the key. After one that does not, it
// returns false.
func (a *Admission) Next(s Share) bool {
	var held []Share
	if a.some {
		held = []Share{a.held}
	}
	if a.full = a.full || !s.Fits(held); a.full {
		return false
	}
	s.Weight += a.held.Weight
	a.held, a.some = s, true
	return true
}

// Full reports whether a request did not fit.
func (a *Admission) Full() bool { return a.full }

// CheckShare returns an error that matches errors.ErrUnsupported if c does not declare s.
func (c Capabilities) CheckShare(s Share) error {
	switch {
	case s.Exclusive(), s.Capacity == 0 && c.Shared, s.Capacity > 0 && c.Permits:
		return nil
	case s.Capacity == 0:
		return fmt.Errorf("read locks: %w by backend %s", errors.ErrUnsupported, c.Name)
	}
	return fmt.Errorf("semaphores: %w by backend %s", errors.ErrUnsupported, c.Name)
}
