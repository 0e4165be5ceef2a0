package model

import (
	"fmt"
	"slices"
	"strings"
)

// Kind says who makes a step, which decides whether it is part of calm: the
// continuation without further faults and without new attempts.
type Kind uint8

// The kinds.
const (
	Calm   Kind = iota // the protocol's own next step; in calm it is taken before time passes
	Choice             // a user's: begin, cancel, renew
	Fault              // something breaks
	Tick               // time passes
)

// Step names a step of a party, and where, for a trace in words.
type Step struct {
	What       string
	Who, Where int8 // numbered from 1; 0: none
}

func (s Step) String() string {
	var b strings.Builder
	if s.Who > 0 {
		fmt.Fprintf(&b, "%c ", 'A'+s.Who-1)
	}
	b.WriteString(s.What)
	if s.Where > 0 {
		fmt.Fprintf(&b, " %d", s.Where)
	}
	return b.String()
}

// Machine is a model: states, and the steps from each.
type Machine[S comparable] interface {
	Start() S
	Steps(s S, to func(Kind, Step, S))
	// Wrong names the promise that is broken in s, or is empty.
	Wrong(s S) string
	// Settled: everybody was served or is gone, and nothing is left behind.
	Settled(s S) bool
	// Canonical is the one state that stands for all that differ from s in names
	// only. Without it there are too many, or they have no end.
	Canonical(s S) S
	Describe(s S) string
}

// Result is what a search has found.
type Result struct {
	States, Steps int
	Flaw          string   // the promise that does not hold; empty if all do
	Trace         []string // how to get there, a line a step
}

func (r Result) String() string {
	if r.Flaw == "" {
		return fmt.Sprintf("%d states, %d steps: no flaw", r.States, r.Steps)
	}
	return fmt.Sprintf("%s\n  %s", r.Flaw, strings.Join(r.Trace, "\n  "))
}

const most = 1_500_000 // states: the bounds of a model are set so that a search takes seconds

type search[S comparable] struct {
	m      Machine[S]
	index  map[S]int32
	states []S
	from   []int32
	mark   []uint8 // of the second pass
	path   []int32
	steps  int
}

// Search visits every reachable state, the nearest first, and stops at the first in
// which a promise is broken: its trace is as short as any. If there is none, it
// looks whether each state settles: whether, from there on, every order of calm
// steps ends with everybody served and nothing left behind.
func Search[S comparable](m Machine[S]) Result {
	x := &search[S]{m: m, index: map[S]int32{}}
	x.add(m.Start(), -1)
	for i := int32(0); int(i) < len(x.states); i++ {
		if why := m.Wrong(x.states[i]); why != "" {
			return x.flaw(why, x.trace(i))
		}
		if len(x.states) > most {
			return x.flaw("too many states", x.trace(i))
		}
		m.Steps(x.states[i], func(_ Kind, _ Step, s S) {
			x.steps++
			x.add(s, i)
		})
	}
	x.mark = make([]uint8, len(x.states))
	for i := range x.states {
		if !x.settles(int32(i)) {
			return x.flaw("a client waits for ever, or state stays behind", x.trace(int32(i)))
		}
	}
	return Result{States: len(x.states), Steps: x.steps}
}

func (x *search[S]) add(s S, from int32) {
	s = x.m.Canonical(s)
	if _, known := x.index[s]; known {
		return
	}
	x.index[s] = int32(len(x.states))
	x.states = append(x.states, s)
	x.from = append(x.from, from)
}

// calm returns where the calm steps lead; time passes only when there is no other.
func (x *search[S]) calm(i int32) []int32 {
	var next, ticks []int32
	x.m.Steps(x.states[i], func(k Kind, _ Step, s S) {
		switch k {
		case Calm:
			next = append(next, x.at(s))
		case Tick:
			ticks = append(ticks, x.at(s))
		case Choice, Fault:
		}
	})
	if len(next) == 0 {
		return ticks
	}
	return next
}

const (
	open = iota + 1
	good
)

// settles follows every calm path. A state that is met again on its own path is
// a circle without an end; the path is kept for the trace.
func (x *search[S]) settles(i int32) bool {
	if x.mark[i] == good {
		return true
	}
	x.path = append(x.path, i)
	if x.mark[i] == open {
		return false
	}
	x.mark[i] = open
	if !x.m.Settled(x.states[i]) {
		for _, j := range x.calm(i) {
			if !x.settles(j) {
				return false
			}
		}
	}
	x.mark[i] = good
	x.path = x.path[:len(x.path)-1]
	return true
}

func (x *search[S]) at(s S) int32 { return x.index[x.m.Canonical(s)] }

// trace walks from the start to state i, and then along the calm path, with the
// names that parties have all the way.
func (x *search[S]) trace(i int32) []string {
	var way []int32
	for j := i; j > 0; j = x.from[j] {
		way = append(way, j)
	}
	slices.Reverse(way)
	s := x.m.Start()
	var lines []string
	walk := func(to int32, calm bool) {
		found := false
		var by Step
		var next S
		x.m.Steps(s, func(k Kind, b Step, t S) {
			if !found && x.at(t) == to && (!calm || k == Calm || k == Tick) {
				found, by, next = true, b, t
			}
		})
		s = next
		lines = append(lines, fmt.Sprintf("%-58s | %s", by, x.m.Describe(s)))
	}
	for _, j := range way {
		walk(j, false)
	}
	if len(x.path) > 0 {
		lines = append(lines, "from here on nothing more goes wrong")
		for _, j := range x.path[1:] {
			walk(j, true)
		}
		lines = append(lines, "and so on for ever")
	}
	return lines
}

func (x *search[S]) flaw(why string, trace []string) Result {
	return Result{States: len(x.states), Steps: x.steps, Flaw: why, Trace: trace}
}
