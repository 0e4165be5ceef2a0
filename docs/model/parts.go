package model

import "slices"

// Times in ticks.
const (
	ttl            = 3
	provisionalTTL = 2
	margin         = 1
	forever        = 100
)

const (
	maxClients  = 3
	maxAttempts = 4 // in all
)

// lease is that of an attempt, by the server.
type lease struct {
	left, token int8
	unclaimed   int8  // 1 plus the age of a pushed grant that no client accepted
	slots       uint8 // of permits
	reads       bool  // after a downgrade
}

// push is a notification of a grant that is on its way.
type push struct {
	copies, left, token int8
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

	sent   request // outstanding
	age    int8    // since it was sent
	answer answer
	reply  reply
}

type reply struct {
	token int8
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
	endedEarly
)

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

// rank replaces tokens by their places in the order of all.
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
