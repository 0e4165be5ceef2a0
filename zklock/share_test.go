package zklock

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/interlock-go/lock/backend"
)

func permits(k, n int) backend.Share { return backend.Share{Weight: k, Capacity: n} }

// formerPlace reads the name of a node as the releases before shares did, for which every place
// in the queue is exclusive.
func formerPlace(node string) (seq int32, ok bool) {
	if len(node) < ownerLen+2 || node[ownerLen] != '-' {
		return 0, false
	}
	owner, digits := node[:ownerLen], node[ownerLen+1:]
	n, err := strconv.ParseInt(digits, 10, 32)
	if err != nil || len(digits) < 10 || digits[0] == '+' || strings.Trim(owner, "0123456789abcdef") != "" {
		return 0, false
	}
	return int32(n), n >= 0 && n <= lastSeq
}

// TestNamesOfShares: an exclusive node has the name that it always had, and a client of an earlier
// release sees the others as places of the same queue.
func TestNamesOfShares(t *testing.T) {
	owner := strings.Repeat("0a", ownerLen/2)
	for share, want := range map[backend.Share]string{
		{}:             owner + "-0000000017",
		backend.Reader: owner + "-00000000017",
		permits(2, 3):  owner + "-000000000017",
	} {
		name := fmt.Sprintf("%s-%s%010d", owner, kindOf(share).zeros(), 17)
		c, ok := parseChild(name)
		if name != want || !ok || c.kind != kindOf(share) || c.owner != owner || c.seq != 17 {
			t.Errorf("share %s: %q, read as %+v, %v; want %q", share, name, c, ok, want)
		}
		if seq, ok := formerPlace(name); !ok || seq != 17 {
			t.Errorf("share %s: an earlier release reads %q as %d, %v", share, name, seq, ok)
		}
	}
	if c, ok := parseChild(owner + "-0000000000017"); !ok || c.kind != exclusiveNode {
		t.Errorf("a kind that is not known: got %+v, %v; want a place that excludes", c, ok)
	}
	if c := (content{metadata: "x"}); string(c.data(exclusiveNode)) != "x" {
		t.Errorf("the data of an exclusive node are %q", c.data(exclusiveNode))
	}
}

func TestContent(t *testing.T) {
	for _, c := range []struct {
		kind kind
		content
		data string
	}{
		{exclusiveNode, content{metadata: "m"}, "m"},
		{exclusiveNode, content{metadata: "m", share: backend.Reader}, "m\x00read"},
		{readerNode, content{metadata: "m", share: backend.Reader}, "m"},
		{permitsNode, content{share: permits(2, 10)}, "\x002/10"},
		{permitsNode, content{metadata: "m", share: permits(4, 10), slots: []int{0, 1, 2, 9}}, "m\x004/10 0-2,9"},
		{permitsNode, content{metadata: "m", share: permits(3, 10), slots: []int{1, 4, 6}}, "m\x003/10 1,4,6"},
	} {
		if got := string(c.content.data(c.kind)); got != c.data {
			t.Errorf("%+v: data %q, want %q", c.content, got, c.data)
		}
		if got := contentOf(c.kind, []byte(c.data)); !reflect.DeepEqual(got, c.content) {
			t.Errorf("%q: read %+v, want %+v", c.data, got, c.content)
		}
	}
	// What the driver did not write excludes.
	for _, data := range []string{"", "m", "m\x00", "m\x000/3", "m\x004/3", "m\x002/0", "m\x001/2000", "m\x002/3 0", "m\x002/3 0-3", "m\x002/3 1-0", "m\x002/3 0,0", "m\x002/3 1,3", "m\x002/3 x", "m\x00read", "m\x001/-1"} {
		if got := contentOf(permitsNode, []byte(data)); !got.share.Exclusive() || got.slots != nil {
			t.Errorf("%q: read %+v, want what excludes", data, got)
		}
	}
}

func FuzzContent(f *testing.F) {
	for _, s := range []string{"m\x002/10 0-1", "\x00read", "m\x001024/1024 0-1023", "m\x001/2 0-999999999"} {
		f.Add(s, uint8(2))
	}
	f.Fuzz(func(t *testing.T, data string, k uint8) {
		kind := kind(k % 3)
		c := contentOf(kind, []byte(data))
		if c.slots != nil && !c.slotsFit() || c.share.Validate() != nil {
			t.Fatalf("%q: read %+v", data, c)
		}
		if !c.share.Exclusive() {
			if again := contentOf(kind, c.data(kind)); !reflect.DeepEqual(again, c) {
				t.Fatalf("%q: read %+v, written and read %+v", data, c, again)
			}
		}
	})
}

// queueOf returns contenders for shares, in order.
func queueOf(shares ...backend.Share) (q []contender) {
	for i, s := range shares {
		q = append(q, contender{child: child{node: fmt.Sprint(i), seq: int32(i), kind: kindOf(s)}, content: content{share: s}})
	}
	return q
}

func TestHolders(t *testing.T) {
	w, r := backend.Share{}, backend.Reader
	for _, c := range []struct {
		queue []backend.Share
		want  int
	}{
		{nil, 0},
		{[]backend.Share{w, r}, 1},
		{[]backend.Share{w, w}, 1},
		{[]backend.Share{r, r, r}, 3},
		{[]backend.Share{r, r, w, r}, 2},
		{[]backend.Share{permits(2, 4), permits(2, 4), permits(1, 4)}, 2},
		{[]backend.Share{permits(2, 4), permits(3, 4), permits(1, 4)}, 1}, // the last one would fit
		{[]backend.Share{permits(4, 4), permits(1, 4)}, 1},
		{[]backend.Share{permits(1, 4), w, permits(1, 4)}, 1},
		{[]backend.Share{permits(1, 4), permits(1, 5), permits(1, 4)}, 1}, // the second is about to leave
		{[]backend.Share{r, permits(1, 5), r}, 1},
	} {
		if got := holders(queueOf(c.queue...)); got != c.want {
			t.Errorf("%v: %d hold, want %d", c.queue, got, c.want)
		}
	}
}

// TestHoldersStay removes places in any order: a contender that holds once does so as long as it
// is in the queue, what holds together fits, and slots that are assigned when some place holds
// are distinct.
func TestHoldersStay(t *testing.T) {
	for range 2000 {
		n := 1 + rand.IntN(6)
		var shares []backend.Share
		for range 12 {
			share := permits(1+rand.IntN(n), n)
			if rand.IntN(8) == 0 {
				share = backend.Share{}
			}
			shares = append(shares, share)
		}
		q := queueOf(shares...)
		held := map[string]bool{}
		for len(q) > 0 {
			k := holders(q)
			weight := 0
			for i, c := range q {
				if held[c.node] && i >= k {
					t.Fatalf("%v: %s does not hold any more", q, c.node)
				}
				if i < k {
					weight += c.share.Weight
				}
			}
			if k == 0 || k > 1 && q[0].share.Exclusive() || weight > n {
				t.Fatalf("%v: %d hold, a weight of %d", q, k, weight)
			}
			for _, c := range q[:k] {
				held[c.node] = true
			}
			some := q[:1+rand.IntN(k)] // one of the holders assigns, perhaps before others hold
			assignSlots(some)
			used := map[int]bool{}
			for i, c := range q {
				if i < len(some) && len(c.slots) != c.share.Weight && c.share.Capacity > 0 {
					t.Fatalf("%v: slots %v", c.share, c.slots)
				}
				for _, s := range c.slots {
					if used[s] {
						t.Fatalf("%v: slot %d twice", q, s)
					}
					used[s] = true
				}
			}
			i := rand.IntN(len(q))
			q = slices.Delete(q, i, i+1)
		}
	}
}

func TestAssignSlots(t *testing.T) {
	q := queueOf(permits(2, 6), permits(1, 6), permits(2, 6))
	q[0].slots = []int{1, 4}
	if got := assignSlots(q); !slices.Equal(got, []int{1, 2}) || fmt.Sprint(q[0].slots, q[1].slots, q[2].slots) != "[1 4] [0] [2 3]" {
		t.Errorf("assigned to %v: %v %v %v", got, q[0].slots, q[1].slots, q[2].slots)
	}
	if got := assignSlots(q); len(got) > 0 {
		t.Errorf("assigned twice: %v", got)
	}
}

func TestCheckCapacity(t *testing.T) {
	w, r := backend.Share{}, backend.Reader
	assigned := queueOf(permits(1, 2), permits(1, 3))
	assigned[1].slots = []int{0}
	for _, c := range []struct {
		me      backend.Share
		front   []contender
		refused bool
	}{
		{r, nil, false},
		{permits(1, 2), queueOf(w), false},
		{permits(1, 2), queueOf(permits(1, 2)), false},
		{permits(1, 2), queueOf(permits(1, 3)), true},
		{permits(1, 2), queueOf(w, permits(1, 3)), true},
		{permits(1, 2), queueOf(r), true},
		{r, queueOf(permits(1, 1)), true},
		{permits(1, 2), queueOf(permits(1, 2), permits(1, 3)), false}, // the second is refused itself
		{permits(1, 2), assigned, true},
	} {
		if err := checkCapacity(c.me, c.front); errors.Is(err, backend.ErrInvalid) != c.refused {
			t.Errorf("%s behind %+v: got %v", c.me, c.front, err)
		}
	}
}
