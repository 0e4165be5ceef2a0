package redislock

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/interlock-go/lock/backend"
)

// Metadata may look like any part of what is stored. They are those of the waiter, of the grant that is pushed to it, of
// the reader that it becomes, and of the holder in an answer.
func TestMetadataThatLookLikeOtherParts(t *testing.T) {
	p := newPrefix()
	b, b2 := newBackend(t, p), newBackend(t, p)
	for _, m := range []string{
		"", " ", "  two ", "u", ":u", ":1/0::u", " :1/0::u x", "5/7", ":1/2147483648", "10000", "10000 5/7 x", "@shared r",
		"0123456789abcdef0123456789abcdef@p0123456789abcdef 5", "%d%s%%", "日本語 é e\u0301 🔒",
		strings.Repeat("é", backend.MaxMetadata/2),
	} {
		for _, share := range []backend.Share{{}, backend.Reader, permits(2, 3), permits(1, backend.MaxPermits)} {
			t.Run(fmt.Sprintf("%.20q/%v", m, share), func(t *testing.T) {
				r := shareRequest("k", share)
				r.Metadata = m
				g := take(t, b2, request("k"))
				ch := enqueue(t.Context(), t, b, r)
				inspect := func() backend.Info {
					in, err := b2.Inspect(t.Context(), "k")
					must(t, err)
					return in
				}
				if w := inspect().Waiters; len(w) != 1 || w[0].Metadata != m || w[0].Share != share || w[0].Owner != r.Owner {
					t.Fatalf("waiters %+v", w)
				}
				must(t, g.Release(t.Context()))
				g = getWithin(t, 2*time.Second, ch)
				if left := time.Until(g.Until()); left > backend.MaxProvisionalTTL {
					t.Errorf("it was not pushed: %v left", left)
				}
				holder := func(share backend.Share) {
					t.Helper()
					h := inspect().Holder
					if h == nil || h.Metadata != m || h.Share != share || h.Owner != r.Owner || h.Token != g.Token() || h.Foreign {
						t.Errorf("holder %+v", h)
					}
				}
				holder(share)
				must(t, g.Renew(t.Context(), time.Minute))
				if share.Exclusive() {
					must(t, g.(backend.Downgrader).Downgrade(t.Context()))
					holder(backend.Reader)
				}
				h, err := b2.Break(t.Context(), "k", "")
				if err != nil || h == nil || h.Metadata != m || h.Owner != r.Owner {
					t.Errorf("broken: %+v, %v", h, err)
				}
			})
		}
	}
}
