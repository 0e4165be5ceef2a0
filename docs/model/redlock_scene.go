package model

// Scene is where a search begins, when the beginning of the story would take too many
// states: A has not come yet, B holds nodes 2 and 3, and C has node 1 alone.
type Scene uint8

// The scenes.
const (
	FromTheStart  Scene = iota
	Minority            // C has asked all nodes and is about to yield
	MinorityToAsk       // C has been handed node 1, and has not heard of it nor asked yet; B waits there
)

// set arranges the scene.
func (m Redlock) set(s *RedlockState) {
	if m.Scene == FromTheStart {
		return
	}
	const b, c = 1, 2
	for k := range s.n {
		n := &s.n[k]
		n.holder, n.left, n.token = b+1, voteTTL, 1
		n.votes[c].asked = true
		if k == 0 {
			n.holder = c + 1
			n.votes[c].mine, n.votes[c].token = voteTTL, 1
			continue
		}
		n.queue = 1 << c
		n.votes[b].mine, n.votes[b].token = voteTTL, 1
	}
	s.c[b] = voter{phase: ruling, holds: 1}
	s.c[c] = voter{phase: voting, lower: true}
	s.highest = 1
	if m.Scene == MinorityToAsk {
		s.n[0].queue = 1 << b
		s.n[0].votes[c] = vote{push: push{copies: 1, left: voteTTL, token: 1}}
	}
}
