package conformance

import (
	"fmt"

	"github.com/anishathalye/porcupine"
)

type opKind int

const (
	opAcquire opKind = iota
	opRelease
	opEnd   // of a lease that was lost: it frees the key if the hold still has it
	opWrite // to a resource that refuses stale tokens
)

type opInput struct {
	kind  opKind
	hold  int    // which grant
	token uint64 // of an acquire or a write
}

// mutexState is the state of the model.
type mutexState struct {
	holder int    // the grant that holds, zero if none
	token  uint64 // of the last grant
	fence  uint64 // the highest that the resource has accepted
}

// mutexModel is one mutex whose grants carry rising tokens, and a resource that
// checks them. The output of a write is whether it was accepted.
func mutexModel(fenced bool, init mutexState) porcupine.Model {
	return porcupine.Model{
		Init: func() any { return init },
		Step: func(state, input, output any) (bool, any) {
			s, in := state.(mutexState), input.(opInput)
			switch in.kind {
			case opAcquire:
				if s.holder != 0 || (fenced && in.token <= s.token) {
					return false, s
				}
				s.holder, s.token = in.hold, in.token
			case opRelease:
				if s.holder != in.hold {
					return false, s
				}
				s.holder = 0
			case opEnd:
				if s.holder == in.hold {
					s.holder = 0
				}
			case opWrite:
				// A token that was not granted yet cannot have been written with.
				if accepted := output.(bool); accepted != (in.token >= s.fence) || in.token > s.token {
					return false, s
				}
				s.fence = max(s.fence, in.token)
			}
			return true, s
		},
		DescribeOperation: func(input, output any) string {
			in := input.(opInput)
			switch in.kind {
			case opAcquire:
				return fmt.Sprintf("grant %d: token %d", in.hold, in.token)
			case opRelease:
				return fmt.Sprintf("grant %d: released", in.hold)
			case opWrite:
				if output == true {
					return fmt.Sprintf("grant %d: write with token %d", in.hold, in.token)
				}
				return fmt.Sprintf("grant %d: write with token %d refused", in.hold, in.token)
			}
			return fmt.Sprintf("grant %d: lost", in.hold)
		},
		DescribeState: func(state any) string {
			s := state.(mutexState)
			if s.holder == 0 {
				return fmt.Sprintf("free, token %d, fence %d", s.token, s.fence)
			}
			return fmt.Sprintf("held by grant %d, token %d, fence %d", s.holder, s.token, s.fence)
		},
	}
}
