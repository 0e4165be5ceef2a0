package queuetest

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/interlock-go/lock/backend"
	"github.com/interlock-go/lock/backend/queue"
)

// sequence is a random series of operations on one key.
type sequence struct {
	processes   int
	disconnects bool // connections of its processes end
	attempts    []attemptSpec
	ops         []op
}

type attemptSpec struct {
	process  int
	share    backend.Share
	ttl      time.Duration
	metadata string
}

type action string

const (
	acquire    action = "Acquire"
	renew      action = "Renew"
	release    action = "Release"
	abandon    action = "Abandon"
	downgrade  action = "Downgrade"
	breakOne   action = "Break"
	breakAll   action = "Break all"
	pass       action = "Pass"
	sleep      action = "sleep"
	disconnect action = "disconnect"
	connect    action = "connect"
)

// op is an operation. It is sent by the process of its attempt, but for Break and what concerns no attempt.
type op struct {
	action  action
	process int
	attempt int           // -1: none
	mode    queue.Mode    // of Acquire
	ttl     time.Duration // of Renew; how long to sleep
	flag    bool          // Exactly of Renew, Late of Release and Abandon, leaves of Pass
}

// tick keeps times apart: a sleep takes some ticks, and a TTL some and a half, so that few leases end when something
// else happens. The constants of package queue are far from a number of ticks.
const tick = 46 * time.Millisecond

const maxProcesses = 4

func newSequence(rnd *rand.Rand, disconnects bool) sequence {
	s := sequence{processes: maxProcesses - rnd.IntN(2), disconnects: disconnects}
	shares := []backend.Share{{}, {}, {}, backend.Reader, backend.Reader}
	if rnd.IntN(2) == 0 {
		shares = append(shares, backend.Share{Weight: 1, Capacity: 2}, backend.Share{Weight: 1, Capacity: 3},
			backend.Share{Weight: 2, Capacity: 3}, backend.Share{Weight: 3, Capacity: 5})
	}
	if rnd.IntN(3) == 0 {
		shares = []backend.Share{{}} // as most locks are
	}
	s.open(rnd)
	longest := []int{5, 40, 80}[rnd.IntN(3)] // ticks of a TTL
	for range 5 + rnd.IntN(6) {
		s.attempt(rnd.IntN(s.processes), shares[rnd.IntN(len(shares))], 2+rnd.IntN(longest))
	}
	for range 8 + rnd.IntN(25) {
		s.ops = append(s.ops, s.random(rnd))
	}
	return s
}

// attempt adds an attempt.
func (s *sequence) attempt(process int, share backend.Share, ticks int) int {
	i := len(s.attempts)
	s.attempts = append(s.attempts, attemptSpec{
		process: process, share: share, metadata: fmt.Sprintf("client %d", i),
		ttl: tick*time.Duration(ticks) + tick/2 + time.Duration(i%11-5)*2*time.Millisecond,
	})
	return i
}

func (s *sequence) random(rnd *rand.Rand) op {
	o := op{process: rnd.IntN(s.processes), attempt: rnd.IntN(len(s.attempts)), flag: rnd.IntN(3) == 0}
	actions := []struct {
		weight int
		action action
	}{
		{40, acquire}, {8, renew}, {16, release}, {5, abandon}, {5, downgrade}, {2, breakOne}, {2, breakAll}, {4, pass},
		{18, sleep}, {6, disconnect}, {10, connect},
	}
	if !s.disconnects {
		actions = actions[:9]
	}
	sum := 0
	for _, a := range actions {
		sum += a.weight
	}
	n := rnd.IntN(sum)
	for _, a := range actions {
		if o.action, n = a.action, n-a.weight; n < 0 {
			break
		}
	}
	switch o.action {
	case acquire:
		o.mode = []queue.Mode{queue.NoQueue, queue.Join, queue.Join, queue.Expect}[rnd.IntN(4)]
	case renew:
		o.ttl = s.attempts[o.attempt].ttl
		switch rnd.IntN(3) {
		case 0:
			o.ttl = o.ttl/2 + 3*time.Millisecond
		case 1:
			o.ttl = 2*o.ttl + 5*time.Millisecond
		}
	case release, abandon:
		o.flag = o.flag && rnd.IntN(2) == 0
	case sleep:
		o.ttl = tick * time.Duration(1+rnd.IntN(8))
		if rnd.IntN(12) == 0 {
			o.ttl = queue.ProvisionalTTL + 4*tick
		}
	case breakOne: // by any process
		return o
	}
	switch o.action {
	case acquire, renew, release, abandon, downgrade:
		o.process = s.attempts[o.attempt].process
	default:
		o.attempt = -1
	}
	return o
}

// without returns s without parts of some operations each, which begin at the given ones.
func (s sequence) without(size int, parts ...int) sequence {
	var ops []op
	for i, o := range s.ops {
		if !slices.ContainsFunc(parts, func(part int) bool { return part <= i && i < part+size }) {
			ops = append(ops, o)
		}
	}
	s.ops = ops
	return s
}

// name returns what the table of a failure calls an attempt.
func (s sequence) name(attempt int) string {
	if attempt < 26 {
		return string(rune('a' + attempt))
	}
	return fmt.Sprintf("a%d", attempt)
}

// describe returns an operation as a table shows it.
func (s sequence) describe(o op) string {
	switch o.action {
	case sleep:
		return fmt.Sprintf("sleep %v", o.ttl)
	case acquire:
		return fmt.Sprintf("Acquire(%s, %s)", s.name(o.attempt), []string{"NoQueue", "Join", "Expect"}[o.mode])
	case renew:
		if o.flag {
			return fmt.Sprintf("Renew(%s, exactly %v)", s.name(o.attempt), o.ttl)
		}
		return fmt.Sprintf("Renew(%s, %v)", s.name(o.attempt), o.ttl)
	case release, abandon, downgrade, breakOne:
		late := ""
		if o.flag && (o.action == release || o.action == abandon) {
			late = ", late"
		}
		return fmt.Sprintf("%s(%s%s)", o.action, s.name(o.attempt), late)
	case pass:
		if o.flag {
			return "Pass, leaves"
		}
	}
	return string(o.action)
}
