package conformance

import (
	"fmt"

	"github.com/anishathalye/porcupine"

	"github.com/interlock-go/lock/backend"
)

type opKind int

const (
	opAcquire opKind = iota
	opLower          // an exclusive hold becomes that of a reader, unless it has ended
	opRelease
	opEnd   // of a lease that was lost
	opWrite // to a resource that refuses stale tokens
)

type opInput struct {
	kind  opKind
	hold  int    // which grant
	token uint64 // of an acquire or a write
	share backend.Share
	// before is the token of the grant before this one, see inOrder.
	before uint64
}

// lockState is the state of the model.
type lockState struct {
	exclusive int    // the grant that holds all, zero if none
	weight    int    // of the shares held
	token     uint64 // of the last grant
	fence     uint64 // the highest that the resource has accepted
}

func (s *lockState) fits(share backend.Share) bool {
	switch {
	case s.exclusive != 0:
		return false
	case share.Exclusive():
		return s.weight == 0
	}
	return share.Capacity == 0 || s.weight+share.Weight <= share.Capacity
}

// end frees what a hold has, and reports whether it had anything.
func (s *lockState) end(in opInput) bool {
	weight := in.share.Weight
	switch {
	case s.exclusive == in.hold:
		s.exclusive = 0
		return true
	case in.share.Exclusive():
		weight = backend.Reader.Weight // it was lowered
	}
	if s.weight < weight {
		return false
	}
	s.weight -= weight
	return true
}

// lockModel is one lock, whole or in shares, whose grants carry rising tokens, and a resource
// that checks them. The output of a write is whether it was accepted.
func lockModel(fenced bool, init lockState) porcupine.Model {
	return porcupine.Model{
		Init: func() any { return init },
		Step: func(state, input, output any) (bool, any) {
			s, in := state.(lockState), input.(opInput)
			switch in.kind {
			case opAcquire:
				if !s.fits(in.share) || (fenced && in.before != s.token) {
					return false, state
				}
				s.token = in.token
				if in.share.Exclusive() {
					s.exclusive = in.hold
				} else {
					s.weight += in.share.Weight
				}
			case opLower:
				if s.exclusive == in.hold {
					s.exclusive, s.weight = 0, backend.Reader.Weight
				}
			case opRelease, opEnd:
				if !s.end(in) {
					return false, state
				}
			case opWrite:
				// A token that was not granted yet cannot have been written with.
				if accepted := output.(bool); accepted != (in.token >= s.fence) || in.token > s.token {
					return false, state
				}
				s.fence = max(s.fence, in.token)
			}
			return true, s
		},
		DescribeOperation: func(input, output any) string {
			in := input.(opInput)
			what := "lost"
			switch {
			case in.kind == opAcquire:
				what = fmt.Sprintf("%v, token %d", in.share, in.token)
			case in.kind == opLower:
				what = "downgraded"
			case in.kind == opRelease:
				what = "released"
			case in.kind == opWrite && output == true:
				what = fmt.Sprintf("write with token %d", in.token)
			case in.kind == opWrite:
				what = fmt.Sprintf("write with token %d refused", in.token)
			}
			return fmt.Sprintf("grant %d: %s", in.hold, what)
		},
		DescribeState: func(state any) string {
			s := state.(lockState)
			held := "free"
			switch {
			case s.exclusive != 0:
				held = fmt.Sprintf("held by grant %d", s.exclusive)
			case s.weight != 0:
				held = fmt.Sprintf("a weight of %d held", s.weight)
			}
			return fmt.Sprintf("%s, token %d, fence %d", held, s.token, s.fence)
		},
	}
}
