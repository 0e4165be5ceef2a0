package model

import (
	"fmt"
	"strings"
)

// Steps implements Machine.
func (m SQL) Steps(s SQLState, to func(Kind, Step, SQLState)) {
	for i := range m.Clients {
		m.clientSteps(s, i, to)
	}
	for id := int8(1); id <= m.Clients*m.Attempts; id++ {
		m.lateSteps(s, id, to)
		m.renewalSteps(s, id, to)
	}
	m.transactionSteps(s, to)
	t := s
	m.pass(&t, -1)
	to(Tick, Step{What: "time passes"}, t)
	if s.slow > 0 {
		for i := range m.Clients {
			if s.c[i].phase == idle || s.c[i].phase == gone {
				continue
			}
			t := s
			t.slow--
			m.pass(&t, i)
			to(Fault, Step{"misses a tick of its clock", i + 1, 0}, t)
		}
	}
}

// send sends a request of the client's attempt. The client no longer awaits the reply to
// the request before.
func (m SQL) send(s *SQLState, i int8, p phase, r request) {
	m.letGo(s, i)
	c := &s.c[i]
	if r&(release|abandon) != 0 && c.dirty {
		r |= entombing
	}
	c.phase, c.sent, c.age = p, r, 0
	if p != holding && (m.EndsBeforeRelease || p != freeing) {
		c.trust = 0
	}
}

// letGo ends the waiting of the client for the reply to its request. The transaction may go on.
func (m SQL) letGo(s *SQLState, i int8) {
	c, id := &s.c[i], m.attempt(i, s.c[i].begun)
	if c.sent != 0 && c.answer == none {
		switch {
		case !m.inTransaction(s, id, c.sent):
			s.late[id-1] |= c.sent
		case c.sent == renew:
			s.held[id-1].renewal.late = true
		default:
			s.tx.late = true
		}
	}
	c.sent, c.age, c.answer, c.reply = 0, 0, none, reply{}
}

// inTransaction reports whether the client's request is a transaction that has begun.
func (m SQL) inTransaction(s *SQLState, id int8, r request) bool {
	if u := s.held[id-1].renewal; r == renew {
		return u.running && !u.late
	}
	return s.tx.id == id && s.tx.what == r && !s.tx.late
}

// end ends the attempt: the client knows that nothing of it remains.
func (m SQL) end(s *SQLState, i int8) {
	m.letGo(s, i)
	s.c[i] = client{begun: s.c[i].begun}
}

// abandonAttempt abandons an attempt whose outcome is unknown.
func (m SQL) abandonAttempt(s *SQLState, i int8) {
	if !m.Abandons {
		m.end(s, i)
		return
	}
	m.send(s, i, abandoning, abandon)
}

func (m SQL) clientSteps(s SQLState, i int8, to func(Kind, Step, SQLState)) {
	c, id := s.c[i], m.attempt(i, s.c[i].begun)
	step := func(k Kind, what string, change func(s *SQLState, c *client)) {
		t := s
		change(&t, &t.c[i])
		to(k, Step{what, i + 1, 0}, t)
	}
	if c.sent != 0 {
		switch {
		case c.answer != none:
			step(Calm, "gets the answer to "+c.sent.String(), func(s *SQLState, _ *client) { m.receive(s, i) })
		case !m.inTransaction(&s, id, c.sent) && m.mayArrive(&s, id, c.sent):
			step(Calm, "'s "+c.sent.String()+" is executed", func(s *SQLState, c *client) {
				a, r := m.arrive(s, id, c.sent, false)
				m.acknowledge(s, i, a, r)
			})
		}
		if s.faults > 0 {
			step(Fault, "loses its connection in "+c.sent.String(), func(s *SQLState, _ *client) {
				s.faults--
				m.broken(s, i)
			})
		}
	}
	if c.phase < gone && c.phase != idle && s.faults > 0 {
		step(Fault, "crashes", func(s *SQLState, c *client) {
			s.faults--
			m.letGo(s, i)
			*c = client{phase: gone, begun: c.begun}
		})
	}
	if s.cancels > 0 && (c.phase == asking || c.phase == waiting) {
		step(Choice, "gives up", func(s *SQLState, c *client) {
			s.cancels--
			c.dirty = c.dirty || c.phase == asking
			m.abandonAttempt(s, i)
		})
	}
	switch c.phase {
	case idle:
		if c.begun < m.Attempts {
			step(Choice, "asks for the lock", func(s *SQLState, c *client) {
				c.begun++
				m.send(s, i, asking, acquire)
			})
		}
	case waiting:
		// A waiter may ask at any time. Calm steps require that it asks when it has reason to.
		if reason := m.reason(&s, id); m.Timer && (!m.Prompt || reason) {
			k := Choice
			if reason {
				k = Calm
			}
			step(k, "asks again", func(s *SQLState, _ *client) { m.send(s, i, asking, acquire) })
		}
	case holding:
		if c.sent == 0 && i < m.Renewing {
			step(Choice, "renews", func(s *SQLState, _ *client) { m.send(s, i, holding, renew) })
		}
		if m.Downgrades && c.sent == 0 && m.Weights[i] == 0 && !c.reads {
			step(Choice, "becomes a reader", func(s *SQLState, c *client) {
				m.send(s, i, holding, downgrade)
				c.reads = true
			})
		}
		step(Calm, "unlocks", func(s *SQLState, _ *client) { m.send(s, i, freeing, release) })
	case asking, freeing, abandoning, gone:
	}
}

// reason reports whether the attempt was granted the key, has lost its place, or knows that a lease
// has ended.
func (m SQL) reason(s *SQLState, id int8) bool {
	if s.held[id-1].exists || !s.queue.has(id) {
		return true
	}
	for _, h := range s.held {
		if h.exists && h.left == 0 {
			return true
		}
	}
	return false
}

// acknowledge sends the answer to the client's request, if there is one.
func (m SQL) acknowledge(s *SQLState, i int8, a answer, r reply) {
	c := &s.c[i]
	if a == none {
		return
	}
	c.answer, c.reply = a, r
	if a != yes || c.sent&(acquire|renew) == 0 {
		c.age = 0
	}
	if m.Prompt {
		m.receive(s, i)
	}
}

// receive handles the reply to the request of the client.
func (m SQL) receive(s *SQLState, i int8) {
	c := &s.c[i]
	a, r, of, age := c.answer, c.reply, c.sent, c.age
	c.sent, c.age, c.answer, c.reply = 0, 0, none, reply{}
	switch c.phase {
	case asking:
		switch a {
		case yes:
			m.hold(s, i, m.trusted(age), r)
		case no:
			c.phase, c.queued = waiting, true
		case refused, none:
			m.end(s, i)
		}
	case holding:
		switch {
		case a == yes && of == downgrade:
		case a == yes:
			if c.trust = m.trusted(age); c.trust == 0 {
				m.send(s, i, freeing, release)
			}
		case c.dirty: // lost, and a late request must not take the key again
			m.abandonAttempt(s, i)
		default:
			m.end(s, i)
		}
	case freeing, abandoning:
		m.end(s, i)
	case idle, waiting, gone:
	}
}

// trusted returns how long a lease is trusted whose request was sent age ago.
func (m SQL) trusted(age int8) int8 {
	left := int8(ttl)
	if m.FromSend {
		left -= age
	}
	if m.Margin {
		left -= margin
	}
	return max(0, left)
}

// hold begins a lease, unless the reply came too late.
func (m SQL) hold(s *SQLState, i, trust int8, r reply) {
	c := &s.c[i]
	if trust == 0 {
		m.send(s, i, freeing, release)
		return
	}
	// Shares that are admitted together may be received in any order.
	if r.token <= s.exclusive || m.Weights[i] == 0 && r.token <= s.highest {
		s.wrong = tokenFell
	}
	s.highest = max(s.highest, r.token)
	if m.Weights[i] == 0 {
		s.exclusive = r.token
	}
	c.phase, c.trust, c.slots = holding, trust, r.slots
}

// broken fails the request of the client, which may still be executed.
func (m SQL) broken(s *SQLState, i int8) {
	c := &s.c[i]
	r := c.sent
	m.letGo(s, i)
	switch c.phase {
	case asking:
		c.dirty = true
		if c.queued {
			c.phase = waiting // it keeps its place and asks again
		} else {
			m.abandonAttempt(s, i)
		}
	case freeing, abandoning:
		m.send(s, i, c.phase, r&^entombing)
	case idle, waiting, holding, gone:
	}
}

// lateSteps are those of requests whose reply no client awaits: they are executed, or never.
func (m SQL) lateSteps(s SQLState, id int8, to func(Kind, Step, SQLState)) {
	for _, r := range []request{acquire, renew, release, abandon, downgrade} {
		if s.late[id-1]&r == 0 {
			continue
		}
		t := s
		if r&(release|abandon) != 0 {
			r |= t.late[id-1] & entombing
		}
		t.late[id-1] &^= r &^ entombing
		if t.late[id-1] == entombing {
			t.late[id-1] = 0
		}
		to(Fault, Step{"'s " + r.String() + " does not arrive", m.clientOf(id) + 1, 0}, t)
		if !m.mayArrive(&s, id, r) {
			continue
		}
		m.arrive(&t, id, r, true)
		if t.view[id-1] != 0 {
			t.late[id-1] |= r
		}
		to(Calm, Step{"'s " + r.String() + " is executed late", m.clientOf(id) + 1, 0}, t)
	}
}

// renewalSteps are those of a renewal that is not committed.
func (m SQL) renewalSteps(s SQLState, id int8, to func(Kind, Step, SQLState)) {
	r, i := s.held[id-1].renewal, m.clientOf(id)
	if !r.running {
		return
	}
	t := s
	h := &t.held[id-1]
	h.renewal = renewal{}
	if r.late {
		to(Fault, Step{"'s RENEW is rolled back", i + 1, 0}, t)
	}
	h.left, h.unclaimed = max(h.left, r.left), 0
	if !r.late {
		m.acknowledge(&t, i, yes, reply{})
	}
	to(Calm, Step{"'s RENEW is committed", i + 1, 0}, t)
}

// transactionSteps are those of the transaction that has locked the row of the lock.
func (m SQL) transactionSteps(s SQLState, to func(Kind, Step, SQLState)) {
	if s.tx.id == 0 {
		return
	}
	i := m.clientOf(s.tx.id)
	if s.tx.late {
		t := s
		t.tx = transaction{}
		to(Fault, Step{"'s " + s.tx.what.String() + " is rolled back", i + 1, 0}, t)
	}
	if m.mayCommit(&s) {
		t := s
		a, r := m.commit(&t, s.tx)
		if !s.tx.late {
			m.acknowledge(&t, i, a, r)
		}
		to(Calm, Step{"'s " + s.tx.what.String() + " is committed", i + 1, 0}, t)
	}
}

// Describe implements Machine.
func (m SQL) Describe(s SQLState) string {
	var b strings.Builder
	for i, h := range s.held {
		if h.exists {
			fmt.Fprintf(&b, "%s holds for %d, token %d; ", m.name(int8(i)+1), h.left, h.token)
		}
	}
	for k, id := range s.queue {
		if id != 0 {
			if k == 0 {
				b.WriteString("queue ")
			}
			b.WriteString(m.name(id) + " ")
		}
	}
	if s.tx.id != 0 {
		fmt.Fprintf(&b, "locked by %s ", m.name(s.tx.id))
	}
	for i := range m.Clients {
		if c := s.c[i]; c.trust > 0 {
			fmt.Fprintf(&b, "; %c trusts for %d", 'A'+i, c.trust)
		}
	}
	return b.String()
}

func (m SQL) name(id int8) string {
	return fmt.Sprintf("%c%d", 'A'+m.clientOf(id), 1+(id-1)/m.Clients)
}
