package model

// Steps implements Machine.
func (m Redlock) Steps(s RedlockState, visit func(Kind, Step, RedlockState)) {
	step := func(k Kind, what string, who, where int, change func(s *RedlockState)) {
		t := s
		change(&t)
		for i := range t.c {
			m.count(&t, i)
		}
		visit(k, Step{what, int8(who) + 1, int8(where) + 1}, t)
	}
	for i := range int(m.Clients) {
		m.contenderSteps(s, i, step)
		for k := range nodes {
			m.deliver(s, i, k, step)
		}
	}
	for k := range nodes {
		if s.restarts > 0 && s.n[k].away == 0 {
			step(Fault, "a restart without data of node", -1, k, func(s *RedlockState) {
				s.restarts--
				s.restarted = true
				votes := s.n[k].votes // what the clients know, and messages in flight
				s.n[k] = node{lost: true, votes: votes}
				if m.RestartDelay {
					s.n[k].away = voteTTL
				}
			})
		}
	}
	if m.between(&s) && (m.Ticks == 0 || s.ticks > 0) {
		step(Tick, "time passes", -1, -1, m.pass)
	}
}

// between reports whether no client is in the middle of a round or of a release. Both take no
// time here, which keeps the number of states small. A late request takes any time.
func (m Redlock) between(s *RedlockState) bool {
	for i, c := range s.c {
		asked := 0
		for k := range s.n {
			if s.n[k].votes[i].asked || s.n[k].votes[i].freed {
				asked++
			}
		}
		if c.phase == voting && asked != 0 && asked != nodes || c.phase == leaving && asked != 0 {
			return false
		}
	}
	return true
}

type redlockStep = func(k Kind, what string, who, where int, change func(s *RedlockState))

// answered discards a push that the node sent before its answer.
func (m Redlock) answered(s *RedlockState, i, k int) {
	if m.OrderedPush {
		s.n[k].votes[i].push = push{}
	}
}

func (m Redlock) contenderSteps(s RedlockState, i int, step redlockStep) {
	v := s.c[i]
	if v.phase >= voting && v.phase <= leaving && s.crashes > 0 {
		step(Fault, "crashes", i, -1, func(s *RedlockState) {
			s.crashes--
			s.c[i] = contender{phase: dead}
			s.forget(i)
		})
	}
	switch v.phase {
	case notStarted:
		step(Choice, "asks for the lock", i, -1, func(s *RedlockState) { s.c[i].phase = voting })
	case voting:
		if s.cancels > 0 {
			step(Choice, "gives up", i, -1, func(s *RedlockState) {
				s.cancels--
				m.leaves(s, i)
			})
		}
	case trusting:
		step(Calm, "unlocks", i, -1, func(s *RedlockState) { m.leaves(s, i) })
	case leaving, done, dead:
	}
	votes, token, agree := s.votes(i)
	round := m.round(&s, i)
	for k := range nodes {
		w := s.n[k].votes[i]
		switch v.phase {
		case voting:
			if !w.asked {
				m.asks(s, i, k, step)
			}
			whole := round || !m.FreshOnly
			if m.Yields && whole && v.earlierTicket && w.mine > 0 && votes < quorum {
				m.yields(s, i, k, step)
			}
			if votes >= quorum && agree < quorum && w.mine > 0 && w.token < token {
				step(Calm, "writes the token at node", i, k, func(s *RedlockState) {
					if s.n[k].holder == int8(i)+1 {
						s.n[k].token, s.n[k].votes[i].token = max(s.n[k].token, token), token
					} else {
						s.n[k].votes[i].mine = 0
					}
				})
			}
		case trusting:
			if s.renewals > 0 && w.mine > 0 {
				step(Choice, "renews at node", i, k, func(s *RedlockState) {
					s.renewals--
					n := &s.n[k]
					if n.votes[i].mine = 0; n.away == 0 && n.holder == int8(i)+1 {
						n.left, n.votes[i].mine = voteTTL, voteTTL
					}
				})
			}
		case leaving:
			if !w.freed {
				m.frees(s, i, k, step)
			}
		case notStarted, done, dead:
		}
	}
}

// round reports whether every node was asked.
func (m Redlock) round(s *RedlockState, i int) bool {
	for k := range s.n {
		if !s.n[k].votes[i].asked {
			return false
		}
	}
	return true
}

func (m Redlock) leaves(s *RedlockState, i int) {
	s.c[i] = contender{phase: leaving, holds: s.c[i].holds}
	for k := range s.n {
		v := &s.n[k].votes[i]
		*v = vote{dirty: v.dirty, yielded: v.yielded, late: v.late, push: v.push}
	}
}

// forget removes the state of an attempt except messages in flight.
func (s *RedlockState) forget(i int) {
	for k := range s.n {
		v := &s.n[k].votes[i]
		*v = vote{late: v.late, yielded: v.yielded}
	}
}

func (m Redlock) asks(s RedlockState, i, k int, step redlockStep) {
	if s.n[k].away > 0 {
		step(Calm, "gets no answer of node", i, k, func(s *RedlockState) { s.n[k].votes[i].asked = true })
		return
	}
	step(Calm, "asks node", i, k, func(s *RedlockState) {
		n, v := &s.n[k], &s.n[k].votes[i]
		v.asked, v.mine, v.token = true, 0, 0
		if m.serve(s, k, i, ask, 0) {
			v.mine, v.token = n.left, n.token
		} else if n.holder != 0 && n.holder < int8(i)+1 {
			s.c[i].earlierTicket = true
		}
		m.answered(s, i, k)
	})
	if s.lates > 0 {
		step(Fault, "asks, and gets no answer of, node", i, k, func(s *RedlockState) {
			s.lates--
			v := &s.n[k].votes[i]
			v.asked, v.dirty = true, true
			v.late |= ask
		})
	}
}

func (m Redlock) yields(s RedlockState, i, k int, step redlockStep) {
	step(Calm, "yields at node", i, k, func(s *RedlockState) {
		n, v := &s.n[k], &s.n[k].votes[i]
		token := v.token
		v.mine, v.token = 0, 0
		if n.away == 0 && m.serve(s, k, i, yield, token) {
			v.mine, v.token = n.left, n.token
			s.c[i].earlierTicket = false
		}
		m.answered(s, i, k)
	})
	if s.lates > 0 {
		step(Fault, "yields, and gets no answer of, node", i, k, func(s *RedlockState) {
			s.lates--
			v := &s.n[k].votes[i]
			v.yielded = v.token
			if m.ForgetsFirst {
				v.mine, v.token = 0, 0
			}
			v.late |= yield
		})
	}
}

func (m Redlock) frees(s RedlockState, i, k int, step redlockStep) {
	step(Calm, "frees node", i, k, func(s *RedlockState) {
		s.n[k].votes[i].freed = true
		if s.n[k].away == 0 {
			m.serve(s, k, i, leave, s.c[i].holds)
		}
		m.answered(s, i, k)
		for k := range s.n {
			if !s.n[k].votes[i].freed {
				return
			}
		}
		s.c[i] = contender{phase: done}
		for k := range s.n {
			s.n[k].votes[i].freed = false
		}
	})
	if s.lates > 0 {
		step(Fault, "frees, and gets no answer of, node", i, k, func(s *RedlockState) {
			s.lates--
			s.n[k].votes[i].late |= leave
		})
	}
}

// count makes a lease of a majority of grants, and ends a lease without a majority.
func (m Redlock) count(s *RedlockState, i int) {
	c := &s.c[i]
	n, token, agree := s.votes(i)
	switch {
	case c.phase == voting && n >= m.quorum() && (agree >= m.quorum() || !m.WriteBack):
		if token <= s.highest {
			s.wrong = tokenFell
		}
		s.highest = token
		*c = contender{phase: trusting, holds: token}
		for k := range s.n {
			s.n[k].votes[i].asked = false
		}
	case c.phase == trusting && n < m.quorum():
		m.leaves(s, i)
	}
}

// deliver is the arrival of a late request or of the message of a grant.
func (m Redlock) deliver(s RedlockState, i, k int, step redlockStep) {
	names := map[requestSet]string{ask: "'s request arrives late at node", yield: "'s yield arrives late at node", leave: "'s release arrives late at node"}
	for _, r := range []requestSet{ask, yield, leave} {
		if s.n[k].votes[i].late&r == 0 {
			continue
		}
		step(Calm, names[r], i, k, func(s *RedlockState) {
			s.n[k].votes[i].late &^= r
			if s.n[k].away == 0 {
				late := int8(0)
				if r == yield {
					late = s.n[k].votes[i].yielded
				}
				m.serve(s, k, i, r, late)
			}
		})
	}
	p, v, c := s.n[k].votes[i].push, s.n[k].votes[i], s.c[i]
	if p.copies == 0 {
		return
	}
	step(Calm, "is notified of its grant at node", i, k, func(s *RedlockState) {
		s.n[k].votes[i].push = push{}
		switch {
		case c.phase == voting && p.token > v.yielded:
			s.n[k].votes[i].mine, s.n[k].votes[i].token = p.left, p.token
			if p.left == 0 {
				s.n[k].votes[i].token = 0
			}
			s.c[i].earlierTicket = s.c[i].earlierTicket && !m.FreshOnly
		case c.phase == done && s.n[k].away == 0:
			m.serve(s, k, i, leave, 0) // release an unclaimed grant
		}
	})
	if s.lates > 0 {
		step(Fault, "is not notified of its grant at node", i, k, func(s *RedlockState) {
			s.lates--
			s.n[k].votes[i].push = push{}
		})
	}
}

func (m Redlock) pass(s *RedlockState) {
	s.ticks = max(0, s.ticks-1)
	for k := range s.n {
		n := &s.n[k]
		if n.away != forever {
			n.away = max(0, n.away-1)
		}
		if n.left > 0 {
			if n.left--; n.left == 0 {
				n.holder = 0
			}
		}
	}
	for i := range s.c {
		again := s.c[i].phase == voting && m.round(s, i)
		if again && m.FreshOnly {
			s.c[i].earlierTicket = false
		}
		for k := range s.n {
			v := &s.n[k].votes[i]
			v.asked = v.asked && !again
			if v.mine = max(0, v.mine-1); v.mine == 0 {
				v.token = 0
			}
			v.push.left = max(0, v.push.left-1)
		}
	}
}
