package model

// forever is a time in ticks that does not pass.
const forever = 100

const maxClients = 3

// push is a notification of a grant that is on its way.
type push struct {
	copies, left, token int8
}

type flaw uint8

const (
	fine flaw = iota
	tokenFell
)

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
