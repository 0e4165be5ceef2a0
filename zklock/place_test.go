package zklock

import (
	"fmt"
	"reflect"
	"strconv"
	"strings"
	"testing"

	"github.com/go-zookeeper/zk"

	"github.com/interlock-go/lock/backend"
	"github.com/interlock-go/lock/backend/places"
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
	if data := dataOf(&places.Place{Contender: backend.Contender{Metadata: "x"}}, exclusiveNode); string(data) != "x" {
		t.Errorf("the data of an exclusive node are %q", data)
	}
}

func placeOf(metadata string, s backend.Share, slots ...int) (p places.Place) {
	p.Metadata, p.Share, p.Slots = metadata, s, slots
	return p
}

func read(k kind, data string) (p places.Place) {
	fill(&p, k, []byte(data))
	return p
}

func TestContent(t *testing.T) {
	for _, c := range []struct {
		kind kind
		places.Place
		data string
	}{
		{exclusiveNode, placeOf("m", backend.Share{}), "m"},
		{exclusiveNode, placeOf("m", backend.Reader), "m\x00read"},
		{readerNode, placeOf("m", backend.Reader), "m"},
		{permitsNode, placeOf("", permits(2, 10)), "\x002/10"},
		{permitsNode, placeOf("m", permits(4, 10), 0, 1, 2, 9), "m\x004/10 0-2,9"},
		{permitsNode, placeOf("m", permits(3, 10), 1, 4, 6), "m\x003/10 1,4,6"},
	} {
		if got := string(dataOf(&c.Place, c.kind)); got != c.data {
			t.Errorf("%+v: data %q, want %q", c.Place, got, c.data)
		}
		if got := read(c.kind, c.data); !reflect.DeepEqual(got, c.Place) {
			t.Errorf("%q: read %+v, want %+v", c.data, got, c.Place)
		}
	}
	// What the driver did not write excludes.
	for _, data := range []string{
		"", "m", "m\x00", "m\x000/3", "m\x004/3", "m\x002/0", "m\x001/2000", "m\x002/3 0", "m\x002/3 0-3", "m\x002/3 1-0",
		"m\x002/3 0,0", "m\x002/3 1,3", "m\x002/3 x", "m\x00read", "m\x001/-1",
	} {
		if got := read(permitsNode, data); !got.Share.Exclusive() || got.Slots != nil {
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
		p := read(kind, data)
		if p.Slots != nil && !slotsFit(&p) || p.Share.Validate() != nil {
			t.Fatalf("%q: read %+v", data, p)
		}
		if !p.Share.Exclusive() {
			if again := read(kind, string(dataOf(&p, kind))); !reflect.DeepEqual(again, p) {
				t.Fatalf("%q: read %+v, written and read %+v", data, p, again)
			}
		}
	})
}

// TestOrder: the places of a lock's node that was created again are behind all of the earlier one.
func TestOrder(t *testing.T) {
	owner := strings.Repeat("0a", ownerLen/2)
	before := newQueue("/x", listing{names: []string{owner + "-0000000007"}, stat: &zk.Stat{Czxid: 40}}, places.All)
	// Each of the seven children before was created by a transaction.
	after := newQueue("/x", listing{names: []string{owner + "-0000000000"}, stat: &zk.Stat{Czxid: 40 + 8 + 1}}, places.All)
	if before.Places[0].Order >= after.Places[0].Order {
		t.Errorf("order %d, then %d", before.Places[0].Order, after.Places[0].Order)
	}
	if q := newQueue("/x", listing{names: []string{owner + "-0000000007"}, stat: &zk.Stat{Czxid: 40}}, 46); len(q.Places) > 0 {
		t.Errorf("up to an order before the first: %+v", q.Places)
	}
}
