package etcdlock

import (
	"cmp"
	"slices"
	"strconv"
	"strings"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/interlock-go/lock/backend"
)

// queue is a copy of the keys of a folder in the order of creation, which is the order in
// which they are granted.
type queue struct {
	folder    string
	keys      []*contender
	processes map[clientv3.LeaseID]int // number of our keys by lease
}

// A contender is a key of a folder: a holder or a waiter.
type contender struct {
	place
	key      string
	revision int64 // that created the key: the position, and the token
	modified int64 // the last revision that put the key
	foreign  bool  // another program put the key; it is exclusive
	slots    []int // permits: those that the contender has; empty until they are recorded
	metadata string
}

// The value of a key is its metadata. A first line before it, which metadata cannot have, is
// the state of the contender: the slots of permits, or downgraded for an exclusive key that
// has become that of a reader.
const downgraded = "read"

func valueOf(state, metadata string) string {
	if state == "" {
		return metadata
	}
	return state + "\n" + metadata
}

func newContender(folder string, kv *mvccpb.KeyValue) *contender {
	c := &contender{key: string(kv.Key), revision: kv.CreateRevision, modified: kv.ModRevision}
	name := c.key[len(folder):]
	var ours bool
	if c.place, ours = parsePlace(name); !ours {
		c.place, c.foreign = place{owner: name, lease: clientv3.LeaseID(kv.Lease)}, true
		return c
	}
	c.metadata = string(kv.Value)
	state, metadata, ok := strings.Cut(c.metadata, "\n")
	if !ok {
		return c
	}
	c.metadata = metadata
	if c.share.Exclusive() && state == downgraded {
		c.share = backend.Reader
	} else if c.share.Capacity > 0 {
		c.slots = parseSlots(state)
	}
	return c
}

func formatSlots(slots []int) string {
	var s []string
	for _, n := range slots {
		s = append(s, strconv.Itoa(n))
	}
	return strings.Join(s, ",")
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

// shown returns what Inspect shows of a waiter.
func (c *contender) shown() backend.Contender {
	return backend.Contender{Owner: c.owner, Metadata: c.metadata, Share: c.share}
}

// holder returns what Inspect shows of a holder.
func (c *contender) holder() backend.Holder {
	return backend.Holder{Contender: c.shown(), Token: uint64(c.revision), Slots: slices.Clone(c.slots), Foreign: c.foreign}
}

func newQueue(folder string, kvs []*mvccpb.KeyValue) queue {
	q := queue{folder: folder, processes: map[clientv3.LeaseID]int{}}
	for _, kv := range kvs {
		q.add(kv)
	}
	return q
}

// holders returns the keys that hold the lock, which are the first ones as far as they fit. A key that holds the lock
// does so until it is deleted: keys before it only end. The rule needs nothing else, so each client decides by its own
// copy of the queue.
func (q *queue) holders() []*contender {
	var a backend.Admission
	for i, c := range q.keys {
		if !a.Next(c.share) {
			return q.keys[:i]
		}
	}
	return q.keys
}

// holds reports whether a key that was in the queue when it was read holds the lock.
func (q *queue) holds(c *contender) bool {
	i, found := q.find(c.key, c.revision)
	return found && i < len(q.holders())
}

// fits reports whether a key behind all others would hold the lock.
func (q *queue) fits(s backend.Share) bool {
	var a backend.Admission
	for _, c := range q.keys {
		if !a.Next(c.share) {
			return false
		}
	}
	return a.Next(s)
}

// find returns the index of a key that revision created, or where it belongs and false.
// A transaction of another program may create several keys.
func (q *queue) find(key string, revision int64) (int, bool) {
	i, _ := slices.BinarySearchFunc(q.keys, revision, func(c *contender, r int64) int {
		return cmp.Compare(c.revision, r)
	})
	for ; i < len(q.keys) && q.keys[i].revision == revision; i++ {
		if q.keys[i].key == key {
			return i, true
		}
	}
	return i, false
}

// add inserts a key, or updates one that was put again.
func (q *queue) add(kv *mvccpb.KeyValue) {
	c := newContender(q.folder, kv)
	i, found := q.find(c.key, c.revision)
	if found {
		q.keys[i] = c
		return
	}
	q.keys = slices.Insert(q.keys, i, c)
	q.count(c, 1)
}

// remove deletes a key. It is mostly one of the first, so those before it are moved.
func (q *queue) remove(key string) {
	i := slices.IndexFunc(q.keys, func(c *contender) bool { return c.key == key })
	if i < 0 {
		return
	}
	c := q.keys[i]
	copy(q.keys[1:i+1], q.keys[:i])
	q.keys = q.keys[1:]
	q.count(c, -1)
}

func (q *queue) count(c *contender, n int) {
	if c.foreign {
		return
	}
	if q.processes[c.lease] += n; q.processes[c.lease] == 0 {
		delete(q.processes, c.lease)
	}
}
