package memlock

import (
	"hash/maphash"
	"sync"
)

// shards must be a power of two.
const shards = 64

// Space is a set of locks. Backends that share a space exclude each other.
type Space struct {
	seed   maphash.Seed
	shards [shards]shard
}

// NewSpace returns an empty space.
func NewSpace() *Space { return &Space{seed: maphash.MakeSeed()} }

var named struct {
	sync.Mutex
	spaces map[string]*Space
}

// Named returns the space of a name, the same one for all callers in this process.
func Named(name string) *Space {
	named.Lock()
	defer named.Unlock()
	s := named.spaces[name]
	if s == nil {
		if named.spaces == nil {
			named.spaces = map[string]*Space{}
		}
		s = NewSpace()
		named.spaces[name] = s
	}
	return s
}

// lockID is a lock's name within a space. The prefix is a field of its own, so no
// name can reach into another prefix.
type lockID struct{ prefix, name string }

// shard is the part of a space that one mutex guards, together with the entries,
// waiters and grants of its locks.
type shard struct {
	mu        sync.Mutex
	lastToken uint64 // of all locks; it only rises, also when locks are removed
	locks     map[lockID]*entry
	spare     *entry   // an unused entry: saves an allocation where one lock comes and goes
	_         [32]byte // keeps neighbours off one cache line
}

func (s *Space) shard(id lockID) *shard {
	return &s.shards[maphash.Comparable(s.seed, id)&(shards-1)]
}
