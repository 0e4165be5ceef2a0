package model

// The hand-off through one server: the scripts of redislock, and its attempts
// (acquire.go, attempt.go, grant.go) with the trust rule of the core. A step takes no
// time; any other step may come between two.

// RedisRules are the safety steps of the protocol.
type RedisRules struct {
	ReleaseChecksOwner bool // RELEASE frees the key of its own attempt only
	RenewChecksOwner   bool // RENEW extends the key of its own attempt only
	AcquireIdempotent  bool // ACQUIRE by the holder returns its grant again
	Tombstone          bool // a late request is refused after the end of the attempt
	HandOffExpires     bool // a pushed grant has an expiry
	ProvisionalTTL     bool // a pushed grant is short until its holder accepts it
	RaisesToken        bool // a pushed grant has its own token
	Margin             bool // trust ends earlier than the server's expiry
	FromSend           bool // trust counts from before the request was sent
	PushFromReply      bool // trust in a pushed grant counts from the last reply, not from its receipt
	EndsBeforeRelease  bool // trust ends before the release is sent
	Abandons           bool // an attempt with an unknown outcome is abandoned
	AbandonDequeues    bool // ABANDON removes the attempt from the queue
	Timer              bool // a waiter polls after some time
	ReleaseDequeues    bool // RELEASE with a tombstone also removes the attempt from the queue
	CountsPermits      bool // permits are granted only if so many are free
	LowestSlots        bool // a share has slots that no other holder has
	WritersWait        bool // a writer is granted only when no share is held
	AbandonAdmits      bool // ABANDON of a waiter admits the waiters behind it
	DowngradeAdmits    bool // DOWNGRADE admits readers
}

// RedisProduct has the safety steps of the product: all but ReleaseDequeues. Without
// that step a late ACQUIRE can queue an attempt again that then ends by RELEASE. The key
// is granted to it later, and its process releases the unclaimed grant.
func RedisProduct() RedisRules {
	return RedisRules{true, true, true, true, true, true, true, true, true, true, true, true, true, true, false, true, true, true, true, true}
}

// Redis is the model and its bounds.
type Redis struct {
	RedisRules
	Clients  int8 // 2 or 3
	Attempts int8 // of each, one after the other
	Faults   int8 // in all
	Cancels  int8
	Prompt   bool // fewer states: an answer takes no time, and a waiter asks only when the key is free
	Slow     int8 // ticks that some client's clock misses; the margin covers one

	Weights    [maxClients]int8 // of the shares that the clients ask for; 0: the whole key
	Capacity   int8             // of all shares; 0: readers
	Downgrades bool             // a holder of the whole key may become a reader
}

// Times in ticks.
const (
	ttl            = 3
	provisionalTTL = 2
	margin         = 1
)

const (
	maxClients  = 3
	maxAttempts = 4 // in all
)

// RedisState is the state of the server, of messages in flight, and of the clients.
type RedisState struct {
	held  [maxAttempts]lease // of each attempt
	token int8
	queue queue
	tombs uint8
	late  [maxAttempts]request // requests whose reply no client awaits, by attempt
	push  [maxAttempts]push    // notifications of grants in flight, by attempt
	c     [maxClients]client

	faults, cancels, slow int8 // that may still happen

	highest   int8 // token of any grant that was held
	exclusive int8 // token of any grant of the whole key that was held
	wrong     flaw
}

// lease is that of an attempt, by the server.
type lease struct {
	left, token int8
	unclaimed   int8  // 1 plus the age of a pushed grant that no client accepted
	slots       uint8 // of permits
	reads       bool  // after a downgrade
}

type push struct {
	copies, left, token int8
	slots               uint8
}

// client makes one attempt after the other.
type client struct {
	phase  phase
	begun  int8 // attempts
	queued bool // the attempt had an answer
	dirty  bool // a request to acquire had none
	trust  int8 // the lease is trusted for that long
	slots  uint8
	reads  bool // it may have been downgraded
	lag    int8 // how long the request of the last reply took to the server

	sent   request // outstanding
	age    int8    // since it was sent
	answer answer
	reply  reply
}

type reply struct {
	left  int8 // for how long the lease would be trusted if the answer came now
	token int8
	lag   int8
	slots uint8
}

type phase uint8

const (
	idle    phase = iota
	asking        // ACQUIRE is under way
	waiting       // in the queue
	holding
	freeing    // RELEASE, until it is acknowledged
	abandoning // ABANDON, until it is acknowledged
	crashed    // but the server takes its connection for alive
	gone
)

// request is a set of requests.
type request uint8

const (
	acquire request = 1 << iota
	renew
	release
	abandon
	downgrade
	entombing // of release and abandon: with a tombstone
)

type answer uint8

const (
	none answer = iota
	yes
	no
	refused
)

type flaw uint8

const (
	fine flaw = iota
	tokenFell
	notAdmitted
	endedEarly // model 3
)

// Start implements Machine.
func (m Redis) Start() RedisState {
	return RedisState{faults: m.Faults, cancels: m.Cancels, slow: m.Slow}
}

// attempt returns the number, from 1, of the current or last attempt of the client.
func (m Redis) attempt(c, begun int8) int8 { return 1 + c + m.Clients*(begun-1) }

func (m Redis) clientOf(id int8) int8 { return (id - 1) % m.Clients }

// Wrong implements Machine.
func (m Redis) Wrong(s RedisState) string {
	switch {
	case conflict(s.c, m.Weights, m.Capacity):
		return "two trust that they hold"
	case s.wrong == tokenFell:
		return "a token did not rise"
	case s.wrong == notAdmitted:
		return "a waiter that fits was not admitted"
	}
	for i, l := range s.held {
		switch {
		case l.left == 0:
		case l.unclaimed > provisionalTTL:
			return "an unclaimed grant lasted longer than the provisional TTL"
		case m.finished(s, int8(i)+1) && (m.ReleaseDequeues || l.unclaimed == 0):
			return "an attempt holds that was over"
		}
	}
	for _, id := range s.queue {
		if id != 0 && m.finished(s, id) && m.ReleaseDequeues {
			return "an attempt waits in the queue that was over"
		}
	}
	return ""
}

// conflict reports whether clients trust that they hold what they cannot hold together.
func conflict(clients [maxClients]client, weights [maxClients]int8, capacity int8) bool {
	holders, whole, weight := 0, false, int8(0)
	var slots uint8
	for i, c := range clients {
		if c.trust == 0 {
			continue
		}
		if c.slots&slots != 0 {
			return true
		}
		holders, slots, weight = holders+1, slots|c.slots, weight+weights[i]
		whole = whole || weights[i] == 0 && !c.reads
	}
	return holders > 1 && (whole || capacity > 0 && weight > capacity)
}

// finished reports whether the client knows that the attempt has ended.
func (m Redis) finished(s RedisState, id int8) bool {
	c := s.c[m.clientOf(id)]
	if c.phase >= crashed {
		return false
	}
	last := m.attempt(m.clientOf(id), c.begun)
	return id < last || id == last && c.phase == idle
}

// Settled implements Machine.
func (m Redis) Settled(s RedisState) bool {
	for _, c := range s.c {
		if c.phase != idle && c.phase != gone {
			return false
		}
	}
	return s.held == [maxAttempts]lease{} && s.late == [maxAttempts]request{} && s.push == [maxAttempts]push{}
}

// Canonical implements Machine. Only the order of tokens counts.
func (Redis) Canonical(s RedisState) RedisState {
	values := []*int8{&s.token, &s.highest, &s.exclusive}
	for i := range s.held {
		values = append(values, &s.held[i].token)
	}
	for i := range s.push {
		values = append(values, &s.push[i].token)
	}
	for i := range s.c {
		values = append(values, &s.c[i].reply.token)
	}
	rank(values)
	return s
}

func rank(values []*int8) {
	var seen [128]bool
	for _, v := range values {
		seen[*v] = true
	}
	var to [128]int8
	n := int8(0)
	for v := 1; v < len(seen); v++ {
		if seen[v] {
			n++
			to[v] = n
		}
	}
	for _, v := range values {
		*v = to[*v]
	}
}
