package model

// arrive begins to execute a request. The answer is none until its transaction commits.
func (m SQL) arrive(s *SQLState, id int8, r request, late bool) (answer, reply) {
	if r == renew {
		return m.renew(s, id, late)
	}
	if !m.ReadsBehindLock && s.view[id-1] == 0 {
		s.view[id-1] = m.rows(s) | hasRead
		return none, reply{}
	}
	t := transaction{id: id, what: r, late: late, view: s.view[id-1]}
	s.view[id-1] = 0
	t.expired = m.expired(s, id, r)
	if t.expired == 0 && !s.held[id-1].renewal.running {
		return m.commit(s, t)
	}
	s.tx = t
	return none, reply{}
}

const hasRead = 1 << 7

// rows returns the holders that have a row.
func (m SQL) rows(s *SQLState) (all uint8) {
	for i, h := range s.held {
		if h.exists {
			all |= 1 << i
		}
	}
	return all
}

// mayArrive reports whether a request need not wait for a row lock.
func (m SQL) mayArrive(s *SQLState, id int8, r request) bool {
	if r == renew && (m.shared(s, id) || !s.held[id-1].exists) {
		return !s.held[id-1].renewal.running
	}
	return s.tx.id == 0 || !m.ReadsBehindLock && r != renew && s.view[id-1] == 0
}

// mayCommit reports whether no renewal has locked a row that the transaction removes or extends.
func (m SQL) mayCommit(s *SQLState) bool {
	for i, h := range s.held {
		if h.renewal.running && (s.tx.expired&(1<<i) != 0 || s.tx.id == int8(i)+1) {
			return false
		}
	}
	return s.tx.id != 0
}

// renew extends the lease of an attempt. That of an exclusive holder is in the row of the lock and
// waits for it, so it is one step. That of a shared holder is committed later.
func (m SQL) renew(s *SQLState, id int8, late bool) (answer, reply) {
	h := &s.held[id-1]
	switch {
	case !h.exists && !m.RenewFindsRow && m.Weights[m.clientOf(id)] > 0:
		*h = row{lease: lease{left: ttl, token: s.token}, exists: true}
		return yes, reply{}
	case !h.exists || h.left == 0 && m.RenewChecksExpiry:
		return no, reply{}
	case !m.shared(s, id):
		h.left, h.unclaimed = ttl, 0
		return yes, reply{}
	}
	h.renewal = renewal{running: true, late: late || !m.AnswersAfterCommit, left: ttl}
	if !m.AnswersAfterCommit {
		return yes, reply{}
	}
	return none, reply{}
}

// expired returns the holders whose lease has ended, if the transaction of the request removes them.
func (m SQL) expired(s *SQLState, id int8, r request) (expired uint8) {
	polls := r == acquire && (s.queue.has(id) || s.held[id-1].exists)
	shares := polls || r&abandon != 0 || r&entombing != 0 // whether it removes shared holders
	exclusive := polls || r&(release|abandon) != 0 || r == acquire && s.queue[0] == 0
	for i, h := range s.held {
		removes := exclusive
		if m.shared(s, int8(i)+1) {
			removes = shares
		}
		if h.exists && h.left == 0 && removes {
			expired |= 1 << i
		}
	}
	return expired
}

// commit ends a transaction: it removes what has expired, does what the request is for, admits the
// waiters that fit, and frees the row of the lock. All of that is visible at once.
func (m SQL) commit(s *SQLState, t transaction) (a answer, r reply) {
	if s.tx.id == t.id {
		s.tx = transaction{}
	}
	for i := range s.held {
		h := &s.held[i]
		if t.expired&(1<<i) == 0 {
			continue
		}
		if h.left > 0 && m.RechecksExpiry { // was renewed
			continue
		}
		if h.left > 0 && !m.TrustOnly {
			s.wrong = endedEarly
		}
		*h = row{}
	}
	if t.expired != 0 && t.what == acquire {
		m.admit(s, &t)
	}
	a, r = m.serve(s, &t)
	if m.ripe(s) && !m.TrustOnly {
		s.wrong = notAdmitted
	}
	return a, r
}

// serve does what a request is for.
func (m SQL) serve(s *SQLState, t *transaction) (answer, reply) {
	switch t.what &^ entombing {
	case acquire:
		return m.serveAcquire(s, t)
	case downgrade:
		return m.serveDowngrade(s, t)
	default:
		return m.serveEnd(s, t)
	}
}

// serveEnd ends an attempt.
func (m SQL) serveEnd(s *SQLState, t *transaction) (answer, reply) {
	h, waited := &s.held[t.id-1], s.queue.has(t.id)
	buries := t.what&entombing != 0
	if buries && m.Tombstone {
		s.tombs |= 1 << t.id
	}
	admits, leaves := m.ReleaseAdmits, buries
	if t.what&abandon != 0 {
		admits, leaves = !waited || m.AbandonAdmits, m.AbandonDequeues
	}
	if leaves {
		s.queue.remove(t.id)
	}
	found := h.exists && (h.left > 0 || m.endsExpired(s, t))
	if found {
		*h = row{}
	}
	if admits {
		m.admit(s, t)
	}
	if !found {
		return no, reply{}
	}
	return yes, reply{}
}

// endsExpired reports whether the end of an attempt removes its row after the end of its lease.
// Else a later request removes it.
func (m SQL) endsExpired(s *SQLState, t *transaction) bool {
	return !m.shared(s, t.id) || t.what&(abandon|entombing) != 0
}

func (m SQL) serveAcquire(s *SQLState, t *transaction) (answer, reply) {
	h := &s.held[t.id-1]
	switch {
	case s.tombs&(1<<t.id) != 0:
		return refused, reply{}
	case h.exists && h.left > 0 && m.AcquireIdempotent:
		h.left, h.unclaimed = max(h.left, ttl-t.age), 0 // never shortened
	case h.exists && h.left == 0: // a poll removes it
		return no, reply{}
	case s.queue[0] == 0 && m.fits(s, t, t.id):
		m.grant(s, t, t.id, ttl, 0)
	default:
		s.queue.add(t.id)
		return no, reply{}
	}
	return yes, reply{token: h.token, slots: h.slots}
}

func (m SQL) serveDowngrade(s *SQLState, t *transaction) (answer, reply) {
	h := &s.held[t.id-1]
	switch {
	case h.reads && !h.exists && !m.DowngradeInserts:
		h.exists = true
	case !h.exists || h.left == 0:
		return no, reply{}
	case !h.reads && !m.DowngradeInserts:
		h.reads, h.exists = true, false
		m.admit(s, t)
		return none, reply{}
	}
	h.reads, h.unclaimed = true, 0
	if m.DowngradeAdmits {
		m.admit(s, t)
	}
	return yes, reply{}
}

// ripe reports whether the first waiter fits beside the holders that have a row.
func (m SQL) ripe(s *SQLState) bool {
	return s.queue[0] != 0 && m.fits(s, &transaction{}, s.queue[0])
}

// sees reports whether the transaction knows that a holder has a row.
func (m SQL) sees(s *SQLState, t *transaction, i int) bool {
	return s.held[i].exists && (t.view == 0 || t.view&(1<<i) != 0)
}

// fits reports whether an attempt can hold beside the holders that have a row.
func (m SQL) fits(s *SQLState, t *transaction, id int8) bool {
	w, sum, held := m.weight(s, id), int8(0), false
	for i := range s.held {
		if !m.sees(s, t, i) {
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
func (m SQL) freeSlots(s *SQLState, t *transaction, id int8) (slots uint8) {
	var taken uint8
	for i, h := range s.held {
		if m.FreeSlots && m.sees(s, t, i) {
			taken |= h.slots
		}
	}
	for i, n := 0, int8(0); n < m.Weights[m.clientOf(id)] && m.Capacity > 0 && i < 8; i++ {
		if taken&(1<<i) == 0 {
			slots |= 1 << i
			n++
		}
	}
	return slots
}

// grant makes an attempt a holder. The lease counts from the time that the transaction has read.
func (m SQL) grant(s *SQLState, t *transaction, id, left, unclaimed int8) {
	slots, token := m.freeSlots(s, t, id), s.token+1
	if !m.OneCounter {
		token = 1
		for _, h := range s.held {
			token = max(token, h.token+1)
		}
	}
	s.token = max(s.token, token)
	left = max(0, left-t.age)
	s.held[id-1] = row{lease: lease{left: left, token: token, unclaimed: unclaimed, slots: slots}, exists: true}
	if t.view != 0 {
		t.view |= 1 << (id - 1)
	}
}

// admit grants the key to the first waiters as long as they fit. Their grants are provisional until
// they ask.
func (m SQL) admit(s *SQLState, t *transaction) {
	for s.queue[0] != 0 && m.fits(s, t, s.queue[0]) {
		id := s.queue[0]
		s.queue.remove(id)
		left := int8(provisionalTTL)
		if !m.ProvisionalTTL {
			left = ttl
		}
		m.grant(s, t, id, left, 1)
	}
}

// pass lets a tick pass. It does not count for the clock of the client slow, if any.
func (m SQL) pass(s *SQLState, slow int8) {
	for i := range s.held {
		h := &s.held[i]
		h.renewal.left = max(0, h.renewal.left-1)
		if h.left == 0 {
			continue
		}
		if h.left--; h.unclaimed > 0 {
			h.unclaimed++
		}
		if h.left == 0 {
			h.unclaimed = min(h.unclaimed, 1)
		}
	}
	if s.tx.id != 0 {
		s.tx.age = min(s.tx.age+1, ttl)
	}
	for i := range s.c {
		c := &s.c[i]
		if int8(i) == slow {
			continue
		}
		if c.sent&(acquire|renew) != 0 && (c.answer == none || m.FromSend) {
			c.age = min(c.age+1, ttl)
		}
		if c.trust > 0 {
			if c.trust--; c.trust == 0 && c.phase == holding {
				m.send(s, int8(i), freeing, release) // lost; the key may still be ours
			}
		}
	}
}
