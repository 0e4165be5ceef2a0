package model

import "slices"

// serve executes a request as its script does.
func (m Redis) serve(s *RedisState, id int8, r request) (answer, reply) {
	if r&entombing != 0 && m.Tombstone {
		s.tombs |= 1 << id
	}
	switch r &^ entombing {
	case acquire:
		return m.serveAcquire(s, id)
	case renew:
		l := &s.held[id-1]
		if m.RenewChecksOwner && l.left == 0 {
			return no, reply{}
		}
		l.left, l.unclaimed = max(l.left, ttl), 0
		return yes, reply{left: l.left}
	case release:
		if m.ReleaseDequeues && r&entombing != 0 {
			s.queue.remove(id)
		}
		if s.held[id-1].left == 0 && m.ReleaseChecksOwner {
			return no, reply{}
		}
		if !m.ReleaseChecksOwner {
			s.held = [maxAttempts]lease{}
		}
		s.held[id-1] = lease{}
		m.admit(s, 0)
	case abandon:
		waited := s.queue.has(id)
		if m.AbandonDequeues {
			s.queue.remove(id)
		}
		if l := &s.held[id-1]; l.left > 0 || waited && m.AbandonAdmits {
			*l = lease{}
			m.admit(s, 0)
		}
	case downgrade:
		l := &s.held[id-1]
		if l.left == 0 {
			return no, reply{}
		}
		l.reads = true
		if m.DowngradeAdmits {
			m.admit(s, 0)
		}
	}
	if m.ripe(*s) {
		s.wrong = notAdmitted
	}
	return yes, reply{}
}

// ripe reports whether the first waiter fits beside holders, of which the shared ones are known to
// the server. It is not called after an expiry, which a poll notices.
func (m Redis) ripe(s RedisState) bool {
	id := s.queue[0]
	return id != 0 && s.held != [maxAttempts]lease{} && s.c[m.clientOf(id)].phase < crashed && m.fits(s, id)
}

// weight returns the weight of an attempt, 0 for the whole key.
func (m Redis) weight(s RedisState, id int8) int8 {
	if s.held[id-1].reads {
		return 1
	}
	return m.Weights[m.clientOf(id)]
}

// fits reports whether an attempt can hold beside the holders.
func (m Redis) fits(s RedisState, id int8) bool {
	w, sum, held := m.weight(s, id), int8(0), false
	for i, l := range s.held {
		if l.left == 0 {
			continue
		}
		h := m.weight(s, int8(i)+1)
		if h == 0 || w == 0 && m.WritersWait {
			return false
		}
		sum, held = sum+h, true
	}
	return !held || m.Capacity == 0 || sum+w <= m.Capacity || !m.CountsPermits
}

// freeSlots returns the lowest slots that are free for an attempt.
func (m Redis) freeSlots(s RedisState, id int8) (slots uint8) {
	if m.Capacity == 0 {
		return 0
	}
	var taken uint8
	for _, l := range s.held {
		if m.LowestSlots {
			taken |= l.slots
		}
	}
	for i, n := 0, int8(0); n < m.Weights[m.clientOf(id)] && i < 8; i++ {
		if taken&(1<<i) == 0 {
			slots |= 1 << i
			n++
		}
	}
	return slots
}

func (m Redis) serveAcquire(s *RedisState, id int8) (answer, reply) {
	if s.tombs&(1<<id) != 0 {
		return refused, reply{}
	}
	l := &s.held[id-1]
	if l.left > 0 && m.AcquireIdempotent {
		l.left, l.unclaimed = max(l.left, ttl), 0 // never shortened
		return yes, reply{left: l.left, token: l.token, slots: l.slots}
	}
	if m.admit(s, id) {
		return yes, reply{left: l.left, token: l.token, slots: l.slots}
	}
	s.queue.add(id)
	return no, reply{}
}

// grant makes an attempt a holder.
func (m Redis) grant(s *RedisState, id, left, unclaimed int8) {
	s.token++
	s.held[id-1] = lease{left: left, token: s.token, unclaimed: unclaimed, slots: m.freeSlots(*s, id)}
}

// admit grants the key to the first waiters as long as they fit and skips those whose process is not
// subscribed. It reports whether it granted it to self, which need not be in the queue.
func (m Redis) admit(s *RedisState, self int8) (granted bool) {
	for s.queue[0] != 0 {
		id := s.queue[0]
		c := s.c[m.clientOf(id)]
		if id != self && c.phase == gone {
			s.queue.remove(id)
			continue
		}
		if !m.fits(*s, id) {
			return granted
		}
		s.queue.remove(id)
		if id == self {
			m.grant(s, id, ttl, 0)
			granted = true
			continue
		}
		before := s.token
		m.grant(s, id, provisionalTTL, 1)
		l := &s.held[id-1]
		if !m.ProvisionalTTL {
			l.left = ttl
		}
		if !m.RaisesToken {
			s.token, l.token = before, before
		}
		if c.phase != crashed {
			s.push[id-1] = push{copies: 1, left: l.left, token: l.token, slots: l.slots}
		}
		if !m.HandOffExpires {
			l.left = forever
		}
	}
	if self != 0 && !granted && m.fits(*s, self) {
		m.grant(s, self, ttl, 0)
		granted = true
	}
	return granted
}

const forever = 100

// queue has the attempts that wait, in order.
type queue [maxAttempts]int8

func (q *queue) has(id int8) bool { return slices.Contains(q[:], id) }

func (q *queue) add(id int8) {
	for i, at := range q {
		if at == id {
			return
		}
		if at == 0 {
			q[i] = id
			return
		}
	}
}

func (q *queue) remove(id int8) {
	to := 0
	for _, at := range q {
		if at != id {
			q[to] = at
			to++
		}
	}
	for ; to < len(q); to++ {
		q[to] = 0
	}
}

// pass lets a tick pass. It does not count for the clock of the client slow, if any.
func (m Redis) pass(s *RedisState, slow int8) {
	for i := range s.held {
		l := &s.held[i]
		if l.left == 0 || l.left == forever {
			continue
		}
		if l.left--; l.left == 0 {
			*l = lease{}
		} else if l.unclaimed > 0 {
			l.unclaimed++
		}
	}
	for i := range s.push {
		s.push[i].left = max(0, s.push[i].left-1)
	}
	for i := range s.c {
		c := &s.c[i]
		if int8(i) == slow {
			if c.queued {
				c.lag-- // the pair makes the server's clock look earlier than it is
			}
			continue
		}
		if c.sent&(acquire|renew) != 0 && c.answer == none {
			c.age = min(c.age+1, ttl)
		}
		if m.FromSend {
			c.reply.left = max(0, c.reply.left-1)
		}
		if c.trust > 0 {
			if c.trust--; c.trust == 0 && c.phase == holding {
				m.send(s, int8(i), freeing, release) // lost; the key may still be ours
			}
		}
	}
}
