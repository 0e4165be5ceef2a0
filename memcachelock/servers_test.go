package memcachelock

import (
	"strconv"
	"testing"
)

// Servers get about the same number of keys. If one is removed, only its keys move.
func TestServersShareKeys(t *testing.T) {
	all := servers{"a:11211", "b:11211", "c:11211", "d:11211"}
	const keys = 4000
	count := map[string]int{}
	for i := range keys {
		key := Key("lock", strconv.Itoa(i))
		before, _ := all.PickServer(key)
		after, _ := append(servers{}, all[1:]...).PickServer(key)
		count[before.String()]++
		if before.String() != "a:11211" && before != after {
			t.Fatalf("key %q was at %s and is at %s", key, before, after)
		}
	}
	for _, s := range all {
		if n := count[s.String()]; n < keys/len(all)*8/10 || n > keys/len(all)*12/10 {
			t.Errorf("%s has %d keys of %d", s, n, keys)
		}
	}
}

// The order of the list does not matter.
func TestServersInAnyOrder(t *testing.T) {
	for i := range 100 {
		key := strconv.Itoa(i)
		one, _ := servers{"a:1", "b:1", "c:1"}.PickServer(key)
		other, _ := servers{"c:1", "a:1", "b:1"}.PickServer(key)
		if one != other {
			t.Errorf("key %q is at %s or %s", key, one, other)
		}
	}
}
