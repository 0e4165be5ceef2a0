package model

import (
	"fmt"
	"strings"
)

// Steps implements Machine.
func (m Redis) Steps(s RedisState, to func(Kind, Step, RedisState)) {
	for i := range m.Clients {
		m.clientSteps(s, i, to)
	}
	for id := int8(1); id <= m.Clients*m.Attempts; id++ {
		m.lateSteps(s, id, to)
		m.pushSteps(s, id, to)
	}
	t := s
	m.pass(&t, -1)
	to(Tick, Step{What: "time passes"}, t)
	if s.slow > 0 {
		for i := range m.Clients {
			if s.c[i].phase == idle || s.c[i].phase >= crashed {
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
func (m Redis) send(s *RedisState, i int8, p phase, r request) {
	m.letGo(s, i)
	c := &s.c[i]
	if r&(release|abandon) != 0 && c.dirty {
		r |= entombing
	}
	c.phase, c.sent, c.age = p, r, 0
	if p != holding {
		if m.EndsBeforeRelease || p != freeing {
			c.trust = 0
		}
	}
}

// letGo ends the waiting of the client for the reply to its request.
func (m Redis) letGo(s *RedisState, i int8) {
	c := &s.c[i]
	if c.sent != 0 && c.answer == none {
		s.late[m.attempt(i, c.begun)-1] |= c.sent
	}
	c.sent, c.age, c.answer, c.reply = 0, 0, none, reply{}
}

// end ends the attempt: the client knows that nothing of it remains.
func (m Redis) end(s *RedisState, i int8) {
	m.letGo(s, i)
	s.c[i] = client{begun: s.c[i].begun}
}

// abandonAttempt abandons an attempt whose outcome is unknown.
func (m Redis) abandonAttempt(s *RedisState, i int8) {
	if !m.Abandons {
		m.end(s, i)
		return
	}
	m.send(s, i, abandoning, abandon)
}

func (m Redis) clientSteps(s RedisState, i int8, to func(Kind, Step, RedisState)) {
	c, id := s.c[i], m.attempt(i, s.c[i].begun)
	step := func(k Kind, what string, change func(s *RedisState, c *client)) {
		t := s
		change(&t, &t.c[i])
		to(k, Step{what, i + 1, 0}, t)
	}
	if c.sent != 0 && c.answer == none {
		step(Calm, "'s "+c.sent.String()+" arrives", func(s *RedisState, c *client) {
			c.answer, c.reply = m.serve(s, id, c.sent)
			switch {
			case c.answer == yes && c.sent&(acquire|renew) != 0:
				c.reply.left = max(0, m.trusted(c.reply.left, c.age))
			case c.sent == acquire:
				c.reply.lag = min(c.age, provisionalTTL-margin) // a longer lag makes no difference
			}
			c.age = 0
			if m.Prompt {
				m.receive(s, i)
			}
		})
	}
	if c.sent != 0 && c.answer != none {
		step(Calm, "gets the answer to "+c.sent.String(), func(s *RedisState, _ *client) { m.receive(s, i) })
	}
	if c.sent != 0 && s.faults > 0 {
		step(Fault, "loses its connection in "+c.sent.String(), func(s *RedisState, _ *client) {
			s.faults--
			m.broken(s, i)
		})
	}
	if c.phase < crashed && c.phase != idle && s.faults > 0 {
		step(Fault, "crashes", func(s *RedisState, c *client) {
			s.faults--
			m.letGo(s, i)
			*c = client{phase: crashed, begun: c.begun}
			for n := int8(1); n <= c.begun; n++ {
				s.push[m.attempt(i, n)-1] = push{}
			}
		})
	}
	if s.cancels > 0 && (c.phase == asking || c.phase == waiting) {
		step(Choice, "gives up", func(s *RedisState, c *client) {
			s.cancels--
			c.dirty = c.dirty || c.phase == asking
			m.abandonAttempt(s, i)
		})
	}
	if c.phase == waiting && s.queue.has(id) && s.faults > 0 {
		step(Fault, "does not answer in time and loses its place", func(s *RedisState, _ *client) {
			s.faults--
			s.queue.remove(id)
			m.admit(s, 0)
		})
	}
	switch c.phase {
	case idle:
		if c.begun < m.Attempts {
			step(Choice, "asks for the lock", func(s *RedisState, c *client) {
				c.begun++
				m.send(s, i, asking, acquire)
			})
		}
	case waiting:
		// The timer may be early or late. Calm steps require that it fires when the first waiter
		// can be granted the key.
		if free := s.queue[0] == 0 || m.fits(s, s.queue[0]); m.Timer && (!m.Prompt || free) {
			k := Choice
			if free {
				k = Calm
			}
			step(k, "asks again", func(s *RedisState, _ *client) { m.send(s, i, asking, acquire) })
		}
	case holding:
		if c.sent == 0 {
			step(Choice, "renews", func(s *RedisState, _ *client) { m.send(s, i, holding, renew) })
		}
		if m.Downgrades && c.sent == 0 && m.Weights[i] == 0 && !c.reads {
			step(Choice, "becomes a reader", func(s *RedisState, c *client) {
				m.send(s, i, holding, downgrade)
				c.reads = true
			})
		}
		step(Calm, "unlocks", func(s *RedisState, _ *client) { m.send(s, i, freeing, release) })
	case crashed:
		step(Calm, "'s connection is closed by the server", func(_ *RedisState, c *client) { c.phase = gone })
	case asking, freeing, abandoning, gone:
	}
}

// receive handles the reply to the request of the client.
func (m Redis) receive(s *RedisState, i int8) {
	c := &s.c[i]
	a, r, of := c.answer, c.reply, c.sent
	c.sent, c.age, c.answer, c.reply = 0, 0, none, reply{}
	switch c.phase {
	case asking:
		switch a {
		case yes:
			m.hold(s, i, r.left, r.token, r.slots)
		case no:
			c.phase, c.queued, c.lag = waiting, true, r.lag
		case refused, none:
			m.end(s, i)
		}
	case holding:
		switch {
		case a == yes && of == downgrade:
		case a == yes:
			if c.trust = r.left; c.trust == 0 {
				m.send(s, i, freeing, release)
			}
		case c.dirty: // lost, and a late request must not take the key again
			m.abandonAttempt(s, i)
		default:
			m.end(s, i)
		}
	case freeing, abandoning:
		m.end(s, i)
	case idle, waiting, crashed, gone:
	}
}

// trusted returns how long a lease is trusted whose request was sent age ago.
func (m Redis) trusted(left, age int8) int8 {
	if !m.FromSend {
		age = 0
	}
	if m.Margin {
		left -= margin
	}
	return left - age
}

// hold begins a lease, unless the reply came too late.
func (m Redis) hold(s *RedisState, i, trust, token int8, slots uint8) {
	c := &s.c[i]
	if trust <= 0 {
		m.send(s, i, freeing, release)
		return
	}
	// Shares that are admitted together may be received in any order.
	if token <= s.exclusive || m.Weights[i] == 0 && token <= s.highest {
		s.wrong = tokenFell
	}
	s.highest = max(s.highest, token)
	if m.Weights[i] == 0 {
		s.exclusive = token
	}
	c.phase, c.trust, c.lag, c.slots = holding, trust, 0, slots
	s.held[m.attempt(i, c.begun)-1].unclaimed = 0
}

// broken fails the request of the client, which may still arrive.
func (m Redis) broken(s *RedisState, i int8) {
	c := &s.c[i]
	r := c.sent
	m.letGo(s, i)
	switch c.phase {
	case asking:
		c.dirty = true
		if c.queued {
			c.phase = waiting // ride it out
		} else {
			m.abandonAttempt(s, i)
		}
	case freeing, abandoning:
		m.send(s, i, c.phase, r&^entombing)
	case idle, waiting, holding, crashed, gone:
	}
}

// lateSteps are those in which a request arrives whose reply no client awaits.
func (m Redis) lateSteps(s RedisState, id int8, to func(Kind, Step, RedisState)) {
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
		m.serve(&t, id, r)
		to(Calm, Step{"'s " + r.String() + " arrives late", m.clientOf(id) + 1, 0}, t)
	}
}

// pushSteps are those in which the notification of a grant arrives at the process of the waiter.
func (m Redis) pushSteps(s RedisState, id int8, to func(Kind, Step, RedisState)) {
	p, i := s.push[id-1], m.clientOf(id)
	c := s.c[i]
	if p.copies == 0 {
		return
	}
	mine := id == m.attempt(i, c.begun)
	if !mine || c.phase != asking { // a push is looked at after the answer
		t := s
		if t.push[id-1].copies--; t.push[id-1].copies == 0 {
			t.push[id-1] = push{}
		}
		switch {
		case mine && c.phase == waiting:
			m.take(&t, i, p)
		case mine && (c.phase == holding || c.phase == freeing):
		default: // unclaimed: release it
			t.late[id-1] |= release
		}
		to(Calm, Step{"gets the message of its grant", i + 1, 0}, t)
	}
	if s.faults > 0 {
		t := s
		t.faults--
		t.push[id-1] = push{}
		to(Fault, Step{"'s message of its grant is lost", i + 1, 0}, t)
		if p.copies == 1 {
			t = s
			t.faults--
			t.push[id-1].copies = 2
			to(Fault, Step{"'s message of its grant is doubled", i + 1, 0}, t)
		}
	}
}

func (m Redis) take(s *RedisState, i int8, p push) {
	c := &s.c[i]
	trust := p.left - c.lag
	if !m.PushFromReply {
		trust = provisionalTTL
	}
	if m.Margin {
		trust -= margin
	}
	if trust <= 0 {
		m.send(s, i, asking, acquire) // ask: the same grant, for its whole time
		return
	}
	m.hold(s, i, trust, p.token, p.slots)
}

func (r request) String() string {
	names := [...]string{"ACQUIRE", "RENEW", "RELEASE", "ABANDON", "DOWNGRADE"}
	for k, n := range names {
		if r&(1<<k) != 0 {
			if r&entombing != 0 {
				n += " with a tombstone"
			}
			return n
		}
	}
	return "nothing"
}

// Describe implements Machine.
func (m Redis) Describe(s RedisState) string {
	var b strings.Builder
	if s.held == [maxAttempts]lease{} {
		b.WriteString("free")
	}
	for i, l := range s.held {
		if l.left > 0 {
			fmt.Fprintf(&b, "held by %s for %d, token %d ", m.name(int8(i)+1), l.left, l.token)
		}
	}
	for k, id := range s.queue {
		if id != 0 {
			if k == 0 {
				b.WriteString("; queue")
			}
			b.WriteString(" " + m.name(id))
		}
	}
	for i := range m.Clients {
		if c := s.c[i]; c.trust > 0 {
			fmt.Fprintf(&b, "; %c trusts for %d", 'A'+i, c.trust)
		}
	}
	return b.String()
}

// name returns the client and number of an attempt: B2 is the second of client B.
func (m Redis) name(id int8) string {
	return fmt.Sprintf("%c%d", 'A'+m.clientOf(id), 1+(id-1)/m.Clients)
}
