package model

// Scene is the state in which a search begins, if a search from the start would take too many
// states: A has not begun, B has the grants of nodes 2 and 3, and C has that of node 1.
type Scene uint8

// The scenes.
const (
	FromTheStart  Scene = iota
	Minority            // C has asked all nodes and is about to yield
	MinorityToAsk       // C was granted node 1, but has not received the message and has not asked; B waits there
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
	s.c[b] = contender{phase: trusting, holds: 1}
	s.c[c] = contender{phase: voting, earlierTicket: true}
	s.highest = 1
	if m.Scene == MinorityToAsk {
		s.n[0].queue = 1 << b
		s.n[0].votes[c] = vote{push: push{copies: 1, left: voteTTL, token: 1}}
	}
}
