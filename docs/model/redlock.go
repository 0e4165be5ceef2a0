package model

import (
	"bytes"
	"fmt"
	"math/bits"
	"strings"
)

// The quorum over three nodes: each is a server with a queue sorted by ticket, and
// an attempt holds when two of them have granted it. An exchange with a node takes no
// time here (what delays do to the trust is shown by the other model), except that
// its request may be late: then it gets no answer, and is executed at any time after.

// RedlockRules are the safety steps of the quorum.
type RedlockRules struct {
	Majority      bool // two of three grants make a hold
	Yields        bool // a minority is given to those who came before
	FreshOnly     bool // and only on answers of this round
	ForgetsFirst  bool // a grant is not counted from before its yield is sent
	YieldsOne     bool // a yield gives away the grant with the token it names, and no other
	GrantsAnew    bool // a poll after a yield without an answer makes a new grant of what it finds
	OrderedPush   bool // a message is ignored that is older than an answer
	WriteBack     bool // a majority has the token before it is used
	SeededByClock bool // a counter that was lost starts above all earlier tokens
	RestartDelay  bool // a node that has lost its data answers nothing for a TTL
	Tombstone     bool // what may come late is refused after the attempt's end
}

// AllRedlockRules are what the quorum needs.
func AllRedlockRules() RedlockRules {
	return RedlockRules{true, true, true, true, true, true, true, true, true, true, true}
}

// Redlock is the model with its bounds: each client makes one attempt, and their
// tickets are in the order of their letters, in whichever order they come.
type Redlock struct {
	RedlockRules
	Clients  int8 // 2 or 3
	Late     int8 // requests that are late, or messages that are lost
	Restarts int8 // of nodes, without their data
	Crashes  int8
	Renewals int8
	Cancels  int8
	Down     bool // one node never answers
	Scene    Scene
	Ticks    int8 // after which the search ends; 0: never
}

const (
	nodes  = 3
	quorum = 2

	voteTTL = 2 // of each grant, handed over or not
)

// RedlockState is the nodes, with all that concerns them, and the clients.
type RedlockState struct {
	n [nodes]node
	c [maxClients]voter

	lates, restarts, crashes, renewals, cancels, ticks int8 // still to come
	restarted                                          bool

	highest int8
	wrong   flaw
}

type node struct {
	holder, left, token int8
	queue, tombs        uint8 // of attempts
	away                int8  // for how long it answers nothing
	lost                bool  // its counter
	votes               [maxClients]vote
}

// vote is what is between an attempt and a node.
type vote struct {
	mine, token int8 // for how long the node keeps the grant for certain
	asked       bool // in this round
	dirty       bool // a request to acquire is late
	yielded     int8 // the token of a grant whose yield has no answer
	freed       bool // the end is acknowledged
	late        ballot
	push        push
}

type voter struct {
	phase votePhase
	lower bool // a refusal named one who came before
	holds int8 // the token
}

type votePhase uint8

const (
	unborn votePhase = iota
	voting
	ruling
	leaving
	done
	dead
)

// ballot is a set of late requests.
type ballot uint8

const (
	ask ballot = 1 << iota
	yield
	leave
)

// Start implements Machine.
func (m Redlock) Start() RedlockState {
	s := RedlockState{lates: m.Late, restarts: m.Restarts, crashes: m.Crashes, renewals: m.Renewals, cancels: m.Cancels, ticks: m.Ticks}
	m.set(&s)
	if m.Down {
		s.n[0].away = forever
	}
	return s
}

// votes are the grants of an attempt, the greatest token, and how many have it.
func (s *RedlockState) votes(i int) (n int, token int8, agree int) {
	for k := range s.n {
		v := s.n[k].votes[i]
		if v.mine == 0 {
			continue
		}
		n++
		switch {
		case v.token > token:
			token, agree = v.token, 1
		case v.token == token:
			agree++
		}
	}
	return n, token, agree
}

func (m Redlock) quorum() int {
	if !m.Majority {
		return 1
	}
	return quorum
}

// Wrong implements Machine.
func (m Redlock) Wrong(s RedlockState) string {
	holders := 0
	for i, v := range s.c {
		if v.phase == ruling {
			holders++
		}
		if v.phase != done || s.restarted { // a restart forgets tombstones
			continue
		}
		for _, n := range s.n {
			if n.holder == int8(i)+1 || n.queue&(1<<i) != 0 {
				return "something stays behind of an attempt that was over"
			}
		}
	}
	switch {
	case holders > 1:
		return "two trust that they hold"
	case s.wrong == tokenFell:
		return "a token did not rise"
	}
	return ""
}

// Settled implements Machine.
func (m Redlock) Settled(s RedlockState) bool {
	if m.Ticks > 0 && s.ticks == 0 {
		return true // not known
	}
	for _, v := range s.c {
		if v.phase != unborn && v.phase != done && v.phase != dead {
			return false
		}
	}
	for _, n := range s.n {
		if n.holder != 0 {
			return false
		}
		for _, v := range n.votes {
			if v.late != 0 || v.push != (push{}) {
				return false
			}
		}
	}
	return true
}

// serve executes a request at a node. It answers whether the attempt holds there.
func (m Redlock) serve(s *RedlockState, k int, i int, r ballot, token int8) bool {
	n, id := &s.n[k], int8(i)+1
	switch r {
	case ask:
		switch {
		case n.tombs&(1<<i) != 0:
		case n.holder == id:
			n.left = voteTTL
			if y := n.votes[i].yielded; m.GrantsAnew && y > 0 && n.token <= y {
				n.token++
			}
			return true
		case n.holder == 0:
			n.queue |= 1 << i
			if m.handOver(s, k, i) == id {
				return true
			}
		}
		if n.tombs&(1<<i) == 0 {
			n.queue |= 1 << i
		}
	case yield:
		if n.holder != id {
			return false
		}
		if m.YieldsOne && n.token != token {
			return true
		}
		if n.queue&(1<<i-1) == 0 {
			return true // it would be the first itself
		}
		n.queue |= 1 << i
		m.handOver(s, k, -1)
	case leave:
		n.token = max(n.token, token)
		n.queue &^= 1 << i
		if m.Tombstone && n.votes[i].dirty {
			n.tombs |= 1 << i
		}
		if n.holder == id {
			m.handOver(s, k, -1)
		}
	}
	return false
}

// handOver gives the node's grant to the first in its queue.
func (m Redlock) handOver(s *RedlockState, k int, self int) int8 {
	n := &s.n[k]
	n.holder, n.left = 0, 0
	for n.queue != 0 {
		i := bits.TrailingZeros8(n.queue)
		n.queue &^= 1 << i
		if s.c[i].phase == dead {
			continue
		}
		n.holder, n.left = int8(i)+1, voteTTL
		if n.lost && m.SeededByClock { // the clock is past all tokens that there are
			for _, o := range s.n {
				n.token = max(n.token, o.token)
			}
			n.token = max(n.token, s.highest)
		}
		n.token++
		n.lost = false
		if i != self {
			n.votes[i].push = push{copies: 1, left: voteTTL, token: n.token}
		}
		return n.holder
	}
	return 0
}

// Describe implements Machine.
func (m Redlock) Describe(s RedlockState) string {
	var b strings.Builder
	for k, n := range s.n {
		fmt.Fprintf(&b, "%d:", k+1)
		switch {
		case n.away > 0:
			b.WriteString("away")
		case n.holder == 0:
			b.WriteString("free")
		default:
			fmt.Fprintf(&b, "%c token %d for %d", 'A'+n.holder-1, n.token, n.left)
		}
		for i := range m.Clients {
			if n.queue&(1<<i) != 0 {
				fmt.Fprintf(&b, ",%c waits", 'A'+i)
			}
		}
		b.WriteString("  ")
	}
	for i, v := range s.c {
		if v.phase == ruling {
			fmt.Fprintf(&b, "%c trusts, token %d  ", 'A'+i, v.holds)
		}
	}
	return strings.TrimSpace(b.String())
}

// Canonical implements Machine: of tokens only the order counts, and the nodes are alike.
func (Redlock) Canonical(s RedlockState) RedlockState {
	values := make([]*int8, 0, 32)
	values = append(values, &s.highest)
	for k := range s.n {
		n := &s.n[k]
		values = append(values, &n.token)
		for i := range n.votes {
			values = append(values, &n.votes[i].token, &n.votes[i].push.token, &n.votes[i].yielded)
		}
	}
	for i := range s.c {
		values = append(values, &s.c[i].holds)
	}
	rank(values)
	for _, p := range [][2]int{{0, 1}, {1, 2}, {0, 1}} {
		if a, b := s.n[p[0]].key(), s.n[p[1]].key(); bytes.Compare(a[:], b[:]) > 0 {
			s.n[p[0]], s.n[p[1]] = s.n[p[1]], s.n[p[0]]
		}
	}
	return s
}

// key is all that a node is.
func (n *node) key() (b [40]byte) {
	flag := func(v bool) byte {
		if v {
			return 1
		}
		return 0
	}
	p := append(b[:0], byte(n.holder), byte(n.left), byte(n.token), n.queue, n.tombs, byte(n.away), flag(n.lost))
	for _, v := range n.votes {
		p = append(p, byte(v.mine), byte(v.token), flag(v.asked)|flag(v.dirty)<<1|flag(v.freed)<<2,
			byte(v.yielded), byte(v.late), byte(v.push.copies), byte(v.push.left), byte(v.push.token))
	}
	return b
}
