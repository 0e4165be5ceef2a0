package lock

import (
	"fmt"
	"slices"

	"github.com/interlock-go/lock/backend"
)

// shownLocked is the backend's refusal with the holder as this client shows it.
func shownLocked(err error, show func(*Holder)) error {
	locked, ok := err.(*LockedError) //nolint:errorlint // one that is wrapped keeps its text
	if !ok {
		return err
	}
	out := *locked
	show(&out.Holder)
	return &out
}

// showing prepares to show the holder of a key, of which the backend knows the attempt
// that was granted, as the lease that holds it here, if it does.
func (o *handOff) showing(key string) func(*Holder) {
	if o == nil {
		return func(*Holder) {}
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.showingLocked(key)
}

func (o *handOff) showingLocked(key string) func(*Holder) {
	own := map[string]Holder{}
	for _, ln := range o.lines[key] {
		if ch := ln.chain; ch != nil {
			own[ch.req.Owner] = ch.lockedLocked().Holder
		}
	}
	return func(h *Holder) {
		if h == nil || h.Foreign {
			return
		}
		if here, ok := own[h.Owner]; ok {
			h.Owner, h.Token = here.Owner, here.Token
			return
		}
		h.Token = loanToken(h.Token, 0)
	}
}

// handOffCapabilities is what is left of a backend's guarantees.
func handOffCapabilities(caps backend.Capabilities) backend.Capabilities {
	caps.Order = backend.Unordered
	caps.Caveats = append(slices.Clone(caps.Caveats),
		"With local hand-off a lock that is broken may be passed on once more before its holder is told, with a token that is less than the successor's.",
		fmt.Sprintf("With local hand-off a grant is passed on within its client up to %d times while it is younger than %v: waiters of one client are served in the order of arrival, clients in the backend's.", chainLength-1, chainAge),
		"With local hand-off fencing tokens are the backend's times 256 plus the number of the hold: all clients of a name must use it, or none.")
	return caps
}
