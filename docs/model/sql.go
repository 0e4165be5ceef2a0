package model

// The admission of readers, writers and permits by the transactions of mysqllock (packetshare.go). Unlike a script of
// Redis or a function of pglock, a transaction is not one step: a renewal writes the row of its holder only and runs
// beside a transaction that has locked the row of the lock.

// SQLRules are the safety steps of the protocol.
type SQLRules struct {
	ReadsBehindLock    bool // weights and slots are read after the row of the lock is locked
	RechecksExpiry     bool // a removal that waited for a renewal evaluates the expiry again
	RenewChecksExpiry  bool // a renewal extends a lease only before its end
	RenewFindsRow      bool // a renewal grants nothing
	AnswersAfterCommit bool // a renewal is acknowledged after its commit
	AcquireIdempotent  bool // a request finds the grant of its attempt
	Tombstone          bool // a late request is refused after the end of the attempt
	OneCounter         bool // tokens come from the row of the lock
	ProvisionalTTL     bool // a grant to a waiter is short until its client has asked
	CountsPermits      bool // permits are granted only if so many are free
	FreeSlots          bool // a share has slots that no row of a holder has
	WritersWait        bool // a writer is granted only when no row of a share is left
	ReleaseAdmits      bool // a release and what it admits are one transaction
	AbandonAdmits      bool // the abandonment of a waiter and what it admits are one transaction
	AbandonDequeues    bool // an abandonment removes the attempt from the queue
	DowngradeAdmits    bool // a downgrade and what it admits are one transaction
	DowngradeInserts   bool // a downgrade frees the lock and inserts the row of the reader in one transaction
	Margin             bool // trust ends earlier than the server's expiry
	FromSend           bool // trust counts from before the request was sent
	EndsBeforeRelease  bool // trust ends before the release is sent
	Abandons           bool // an attempt with an unknown outcome is abandoned
	Timer              bool // a waiter polls when a lease may have ended
}

// SQLProduct has the safety steps of the product.
func SQLProduct() SQLRules {
	return SQLRules{true, true, true, true, true, true, true, true, true, true,
		true, true, true, true, true, true, true, true, true, true, true, true}
}

// SQL is the model and its bounds.
type SQL struct {
	SQLRules
	Clients  int8 // 2 or 3
	Attempts int8 // of each, one after the other
	Faults   int8 // in all
	Cancels  int8
	Prompt   bool // fewer states: an answer takes no time, and a waiter asks only when it has a reason
	Renewing int8 // so many of the clients renew
	Slow     int8 // ticks that some client's clock misses; the margin covers one

	Weights    [maxClients]int8 // of the shares that the clients ask for; 0: the whole key
	Capacity   int8             // of all shares; 0: readers
	Downgrades bool             // a holder of the whole key may become a reader

	TrustOnly bool // checks only what clients trust and their tokens, and that everything settles
}

// SQLState is the state of the table, of transactions, of requests in flight, and of the clients.
type SQLState struct {
	held  [maxAttempts]row // by attempt
	token int8             // in the row of the lock
	queue queue
	tombs uint8
	tx    transaction
	view  [maxAttempts]uint8   // without ReadsBehindLock: holders that a request has read, and a bit that it has
	late  [maxAttempts]request // requests whose reply no client awaits
	c     [maxClients]client

	faults, cancels, slow int8 // that may still happen

	highest   int8 // token of any grant that was held
	exclusive int8 // token of any grant of the whole key that was held
	wrong     flaw
}

// row is that of a shared holder, or of the lock while it has an exclusive holder. It stays after
// the end of the lease, until a transaction removes it.
type row struct {
	lease
	exists  bool
	renewal renewal
}

// renewal is an UPDATE of the row of a shared holder that is not committed.
type renewal struct {
	running, late bool
	left          int8 // of the lease, after the commit
}

// transaction is the one that has locked the row of the lock.
type transaction struct {
	id      int8 // attempt, 0: none
	what    request
	late    bool  // its client does not await the reply
	age     int8  // since it read the time
	expired uint8 // holders that it found expired
	view    uint8 // without ReadsBehindLock
}

// Start implements Machine.
func (m SQL) Start() SQLState {
	return SQLState{faults: m.Faults, cancels: m.Cancels, slow: m.Slow}
}

func (m SQL) attempt(c, begun int8) int8 { return 1 + c + m.Clients*(begun-1) }

func (m SQL) clientOf(id int8) int8 { return (id - 1) % m.Clients }

// weight returns the weight of an attempt, 0 for the whole key.
func (m SQL) weight(s *SQLState, id int8) int8 {
	if s.held[id-1].reads {
		return 1
	}
	return m.Weights[m.clientOf(id)]
}

// shared reports whether the attempt has the row of a shared holder.
func (m SQL) shared(s *SQLState, id int8) bool {
	return s.held[id-1].exists && m.weight(s, id) > 0
}

// Wrong implements Machine.
func (m SQL) Wrong(s SQLState) string {
	switch {
	case conflict(s.c, m.Weights, m.Capacity):
		return "two trust that they hold"
	case s.wrong == tokenFell:
		return "a token did not rise"
	case m.TrustOnly:
		return ""
	case s.wrong == endedEarly:
		return "a lease was removed before its end"
	case s.wrong == notAdmitted:
		return "a waiter that fits was not admitted"
	}
	for i := range s.held {
		h, id := &s.held[i], int8(i)+1
		switch {
		case !h.exists || h.left == 0:
		case h.unclaimed > provisionalTTL:
			return "an unclaimed grant lasted longer than the provisional TTL"
		case m.finished(&s, id):
			return "an attempt holds that was over"
		}
	}
	for _, id := range s.queue {
		if id != 0 && m.finished(&s, id) {
			return "an attempt waits in the queue that was over"
		}
	}
	return ""
}

// finished reports whether the client knows that the attempt has ended.
func (m SQL) finished(s *SQLState, id int8) bool {
	c := s.c[m.clientOf(id)]
	if c.phase == gone {
		return false
	}
	last := m.attempt(m.clientOf(id), c.begun)
	return id < last || id == last && c.phase == idle
}

// Settled implements Machine. The next request removes the rows of holders that have expired.
func (m SQL) Settled(s SQLState) bool {
	for _, c := range s.c {
		if c.phase != idle && c.phase != gone {
			return false
		}
	}
	for _, h := range s.held {
		if h.left > 0 || h.renewal.running {
			return false
		}
	}
	return s.late == [maxAttempts]request{} && s.tx.id == 0
}

// Canonical implements Machine. Only the order of tokens counts.
func (SQL) Canonical(s SQLState) SQLState {
	values := []*int8{&s.token, &s.highest, &s.exclusive}
	for i := range s.held {
		values = append(values, &s.held[i].token)
	}
	for i := range s.c {
		values = append(values, &s.c[i].reply.token)
	}
	rank(values)
	return s
}
