package etcdlock

import (
	"slices"
	"strconv"
	"strings"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/interlock-go/lock/backend"
	"github.com/interlock-go/lock/backend/places"
)

var (
	oldestFirst = clientv3.WithSort(clientv3.SortByCreateRevision, clientv3.SortAscend)
	newestFirst = clientv3.WithSort(clientv3.SortByCreateRevision, clientv3.SortDescend)
)

// downgraded is the state of an exclusive key that has become that of a reader.
const downgraded = "read"

// valueOf returns the value of a key: a line with the owner and, after a space, the state of the place, which is the
// slots of permits, or downgraded; then the metadata.
func valueOf(p *places.Place) string {
	state := ""
	switch {
	case len(p.Slots) > 0:
		var s []string
		for _, n := range p.Slots {
			s = append(s, strconv.Itoa(n))
		}
		state = " " + strings.Join(s, ",")
	case p.Share == backend.Reader:
		state = " " + downgraded
	}
	return p.Owner + state + "\n" + p.Metadata
}

// newQueue returns the places of a folder in the order in which their keys were created. more is whether others are
// before or, if they were read oldest first, behind them.
func newQueue(folder string, kvs []*mvccpb.KeyValue, more bool) places.Queue {
	q := places.Queue{Places: make([]places.Place, 0, len(kvs)), More: more}
	for _, kv := range kvs {
		q.Places = append(q.Places, newPlace(folder, kv))
	}
	slices.SortFunc(q.Places, func(a, b places.Place) int {
		if a.Order != b.Order { // a transaction of another program may create several keys
			return int(min(max(int64(a.Order-b.Order), -1), 1))
		}
		return strings.Compare(a.ID, b.ID)
	})
	return q
}

func newPlace(folder string, kv *mvccpb.KeyValue) places.Place {
	p := places.Place{
		ID: string(kv.Key), Order: uint64(kv.CreateRevision), Token: uint64(kv.CreateRevision),
		Version: uint64(kv.ModRevision),
	}
	n, ours := parseName(p.ID[len(folder):])
	first, metadata, complete := strings.Cut(string(kv.Value), "\n")
	owner, state, _ := strings.Cut(first, " ")
	if !ours || !complete || owner == "" {
		p.Owner, p.Session, p.Foreign = p.ID[len(folder):], p.ID, true
		return p
	}
	p.Session = strconv.FormatInt(int64(n.lease), 16)
	p.Owner, p.Share, p.Metadata = owner, n.share, metadata
	if p.Share.Exclusive() && state == downgraded {
		p.Share = backend.Reader
	} else if p.Share.Capacity > 0 {
		p.Slots = parseSlots(state)
	}
	return p
}

func parseSlots(s string) (slots []int) {
	for n := range strings.SplitSeq(s, ",") {
		slot, err := strconv.Atoi(n)
		if err != nil {
			return nil
		}
		slots = append(slots, slot)
	}
	return slots
}
