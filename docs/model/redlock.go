package model

import (
	"bytes"
	"fmt"
	"math/bits"
	"strings"
)

// The quorum over three nodes. Each node is a server with a queue sorted by ticket. An attempt
// holds the lock when two nodes have granted it. An exchange with a node takes no time (the
// other model shows the effect of delays on trust), but a request may be late: then it gets no
// answer and is executed at any later time.

// RedlockRules are the safety steps of the quorum.
type RedlockRules struct {
	Majority           bool // two of three grants make a lease
	Yields             bool // a minority is given to contenders with earlier tickets
	FreshOnly          bool // a contender yields only on answers of this round
	ForgetsFirst       bool // a contender stops counting a grant before it sends the yield
	YieldsOne          bool // a yield releases only the grant with the token that it names
	NewGrantAfterYield bool // a request after a yield without an answer gets a new token
	OrderedPush        bool // a message that is older than an answer is ignored; the token shows it
	WriteBack          bool // a majority of nodes has the token before it is used
	SeededByClock      bool // a node that lost its counter starts above all earlier tokens
	RestartDelay       bool // a node that lost its data does not answer for a TTL
	Tombstone          bool // a late request is refused after the end of its attempt
}

// AllRedlockRules returns the rules with all safety steps.
func AllRedlockRules() RedlockRules {
	return RedlockRules{true, true, true, true, true, true, true, true, true, true, true}
}

// Redlock is the model and its bounds. Each client makes one attempt. Tickets have the order of
// the names of the clients; clients may begin in any order.
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

	voteTTL = 2 // of each grant
)

// RedlockState is the state of the nodes, of the messages and of the clients.
type RedlockState struct {
	n [nodes]node
	c [maxClients]contender

	lates, restarts, crashes, renewals, cancels, ticks int8 // that may still happen
	restarted                                          bool

	highest int8
	wrong   flaw
}

type node struct {
	holder, left, token int8
	queue, tombs        uint8 // of attempts
	away                int8  // ticks until the node answers again
	lost                bool  // the node has lost its counter
	votes               [maxClients]vote
}

// vote is the state between an attempt and a node.
type vote struct {
	mine, token int8 // ticks for which the node certainly keeps the grant; its token
	asked       bool // in this round
	dirty       bool // a request to acquire is late
	yielded     int8 // the token of a grant whose yield has no answer
	freed       bool // the end is acknowledged
	late        requestSet
	push        push
}

type contender struct {
	phase         votePhase
	earlierTicket bool // a refusal named a contender with an earlier ticket
	holds         int8 // the token
}

type votePhase uint8

const (
	notStarted votePhase = iota
	voting
	trusting
	leaving
	done
	dead
)

// requestSet is a set of late requests.
type requestSet uint8

const (
	ask requestSet = 1 << iota
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

// votes returns the number of grants of an attempt, the greatest token, and how many grants
// have it.
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
		if v.phase == trusting {
			holders++
		}
		if v.phase != done || s.restarted { // a restart forgets tombstones
			continue
		}
		for _, n := range s.n {
			if n.holder == int8(i)+1 || n.queue&(1<<i) != 0 {
				return "state of an ended attempt stays behind"
			}
		}
	}
	switch {
	case holders > 1:
		return "two contenders trust their leases"
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
		if v.phase != notStarted && v.phase != done && v.phase != dead {
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

// serve executes a request at a node. It reports whether the attempt has the grant there.
func (m Redlock) serve(s *RedlockState, k int, i int, r requestSet, token int8) bool {
	n, id := &s.n[k], int8(i)+1
	switch r {
	case ask:
		switch {
		case n.tombs&(1<<i) != 0:
		case n.holder == id:
			n.left = voteTTL
			if y := n.votes[i].yielded; m.NewGrantAfterYield && y > 0 && n.token <= y {
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
			return true // it would be the first in the queue again
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
		if n.lost && m.SeededByClock { // the clock is past all tokens
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
		if v.phase == trusting {
			fmt.Fprintf(&b, "%c trusts, token %d  ", 'A'+i, v.holds)
		}
	}
	return strings.TrimSpace(b.String())
}

// Canonical implements Machine. Only the order of tokens matters, and the nodes are interchangeable.
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

// key returns the state of a node as bytes.
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
