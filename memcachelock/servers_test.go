package memcachelock

import (
	"slices"
	"strconv"
	"testing"
)

// Servers get about the same number of keys. If one is removed, only its keys move.
func TestServersShareKeys(t *testing.T) {
	all := named("a:11211", "b:11211", "c:11211", "d:11211")
	const keys = 4000
	count := map[string]int{}
	for i := range keys {
		key := Key("lock", strconv.Itoa(i))
		before, after := nameOf(all, key), nameOf(all[1:], key)
		count[before]++
		if before != "a:11211" && before != after {
			t.Fatalf("key %q was at %s and is at %s", key, before, after)
		}
	}
	for _, s := range all {
		if n := count[s.name]; n < keys/len(all)*8/10 || n > keys/len(all)*12/10 {
			t.Errorf("%s has %d keys of %d", s.name, n, keys)
		}
	}
}

// The order of the list does not matter.
func TestServersInAnyOrder(t *testing.T) {
	for i := range 100 {
		key := strconv.Itoa(i)
		one := nameOf(named("a:1", "b:1", "c:1"), key)
		other := nameOf(named("c:1", "a:1", "b:1"), key)
		if one != other {
			t.Errorf("key %q is at %s or %s", key, one, other)
		}
	}
}

func named(names ...string) (all servers) {
	for _, name := range names {
		all = append(all, server{name, &node{}})
	}
	return all
}

func nameOf(all servers, key string) string {
	n := all.node(key)
	return all[slices.IndexFunc(all, func(s server) bool { return s.node == n })].name
}
