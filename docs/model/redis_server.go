package model

// serve executes a request as its script does.
func (m Redis) serve(s *RedisState, id int8, r request) (answer, reply) {
	if r&entombing != 0 && m.Tombstone {
		s.tombs |= 1 << id
	}
	switch r &^ entombing {
	case acquire:
		return m.serveAcquire(s, id)
	case renew:
		if m.RenewChecksOwner && s.holder != id {
			return no, reply{}
		}
		s.holder, s.left, s.unclaimed = id, max(s.left, ttl), 0
		return yes, reply{left: s.left}
	case release:
		if m.ReleaseDequeues && r&entombing != 0 {
			s.dequeue(id)
		}
		if s.holder == 0 || m.ReleaseChecksOwner && s.holder != id {
			return no, reply{}
		}
		m.handOver(s, 0)
	case abandon:
		if m.AbandonDequeues {
			s.dequeue(id)
		}
		if s.holder == id {
			m.handOver(s, 0)
		}
	}
	return yes, reply{}
}

func (m Redis) serveAcquire(s *RedisState, id int8) (answer, reply) {
	if s.tombs&(1<<id) != 0 {
		return refused, reply{}
	}
	if s.holder == id && m.AcquireIdempotent {
		s.left, s.unclaimed = max(s.left, ttl), 0 // never shortened
		return yes, reply{left: s.left, token: s.token}
	}
	if s.holder == 0 {
		if who := m.handOver(s, id); who == 0 || who == id {
			s.holder, s.left, s.unclaimed = id, ttl, 0
			s.token++
			return yes, reply{left: s.left, token: s.token}
		}
	}
	s.enqueue(id)
	return no, reply{}
}

// handOver grants the key to the first waiter whose process is subscribed, or frees the
// key. It stops at self, which it removes from the queue.
func (m Redis) handOver(s *RedisState, self int8) int8 {
	s.holder, s.left, s.unclaimed = 0, 0, 0
	for s.queue[0] != 0 {
		id := s.queue[0]
		s.dequeue(id)
		if id == self {
			return id
		}
		c := s.c[m.clientOf(id)]
		if c.phase == gone {
			continue
		}
		s.holder, s.left, s.unclaimed = id, provisionalTTL, 1
		if !m.ProvisionalTTL {
			s.left = ttl
		}
		if m.RaisesToken {
			s.token++
		}
		if c.phase != crashed {
			s.push[id-1] = push{copies: 1, left: s.left, token: s.token}
		}
		if !m.HandOffExpires {
			s.left = forever
		}
		return id
	}
	return 0
}

const forever = 100

func (s *RedisState) enqueue(id int8) {
	for i, q := range s.queue {
		if q == id {
			return
		}
		if q == 0 {
			s.queue[i] = id
			return
		}
	}
}

func (s *RedisState) dequeue(id int8) {
	to := 0
	for _, q := range s.queue {
		if q != id {
			s.queue[to] = q
			to++
		}
	}
	for ; to < len(s.queue); to++ {
		s.queue[to] = 0
	}
}

// pass lets a tick pass. It does not count for the clock of the client slow, if any.
func (m Redis) pass(s *RedisState, slow int8) {
	if s.left > 0 && s.left != forever {
		if s.left--; s.left == 0 {
			s.holder, s.unclaimed = 0, 0
		}
	}
	if s.unclaimed > 0 && s.left != forever {
		s.unclaimed++
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
