package backend_test

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/interlock-go/lock/backend"
)

func TestFreeSlots(t *testing.T) {
	for _, c := range []struct {
		share backend.Share
		taken []int
		want  []int
	}{
		{backend.Share{}, []int{0}, nil},
		{backend.Reader, []int{0}, nil},
		{backend.Share{Weight: 2, Capacity: 3}, nil, []int{0, 1}},
		{backend.Share{Weight: 2, Capacity: 5}, []int{3, 0, 2}, []int{1, 4}},
		{backend.Share{Weight: 2, Capacity: 2}, []int{1}, []int{0}},
		{backend.Share{Weight: 1, Capacity: 2}, []int{1, 0}, nil},
		{backend.Share{Weight: 3, Capacity: 3}, []int{-1, 3, 1 << 40, -1 << 40}, []int{0, 1, 2}},
	} {
		if got := c.share.FreeSlots(c.taken); !slices.Equal(got, c.want) {
			t.Errorf("%v beside %v: got %v, want %v", c.share, c.taken, got, c.want)
		}
	}
}

var whole = backend.Share{}

func permits(weight, capacity int) backend.Share {
	return backend.Share{Weight: weight, Capacity: capacity}
}

func TestFits(t *testing.T) {
	for _, c := range []struct {
		share backend.Share
		held  []backend.Share
		want  bool
	}{
		{whole, nil, true},
		{whole, []backend.Share{whole}, false},
		{whole, []backend.Share{backend.Reader}, false},
		{whole, []backend.Share{permits(1, 9)}, false},
		{backend.Reader, []backend.Share{whole}, false},
		{backend.Reader, slices.Repeat([]backend.Share{backend.Reader}, 5000), true},
		{backend.Reader, []backend.Share{permits(1, 9)}, false},
		{permits(1, 9), []backend.Share{whole}, false},
		{permits(1, 9), []backend.Share{backend.Reader}, false},
		{permits(2, 4), []backend.Share{permits(1, 4), permits(1, 4)}, true},
		{permits(2, 4), []backend.Share{permits(1, 4), permits(2, 4)}, false},
		{permits(1, 4), []backend.Share{permits(3, 9)}, true},
		{permits(1, 4), []backend.Share{permits(4, 9)}, false},
		{permits(4, 9), []backend.Share{permits(4, 4)}, true},
		{permits(6, 9), []backend.Share{permits(4, 4)}, false},
		{permits(1, 4), []backend.Share{permits(3, 4), permits(1, 9)}, false},
	} {
		if got := c.share.Fits(c.held); got != c.want {
			t.Errorf("%v beside %v: got %t, want %t", c.share, c.held, got, c.want)
		}
	}
}

func TestAdmitted(t *testing.T) {
	r := backend.Reader
	for _, c := range []struct {
		queue []backend.Share
		want  int
	}{
		{nil, 0},
		{[]backend.Share{whole, r}, 1},
		{[]backend.Share{whole, whole}, 1},
		{[]backend.Share{r, r, whole, r}, 2},
		{[]backend.Share{r, permits(1, 5), r}, 1},
		{[]backend.Share{permits(2, 4), permits(3, 4), permits(1, 4)}, 1}, // the last would fit
		{[]backend.Share{permits(1, 4), permits(1, 5), permits(2, 4)}, 3},
		{[]backend.Share{permits(4, 4), permits(1, 4), permits(1, 9)}, 1},
		{[]backend.Share{permits(4, 4), permits(5, 9)}, 2},
		{[]backend.Share{permits(2, 9), permits(1, 2), permits(1, 9)}, 1},
		{[]backend.Share{permits(1, 9), permits(1, 2), permits(7, 9)}, 3},
	} {
		if got := backend.Admitted(c.queue); got != c.want {
			t.Errorf("%v: got %d, want %d", c.queue, got, c.want)
		}
	}
}

// TestAdmission: nothing behind a request that does not fit is admitted.
func TestAdmission(t *testing.T) {
	var a backend.Admission
	for i, s := range []backend.Share{permits(2, 4), permits(3, 4), permits(1, 4)} {
		if a.Next(s) != (i == 0) || a.Full() != (i > 0) {
			t.Errorf("%d, %v: full %t", i, s, a.Full())
		}
	}
}

// randomQueue returns shares, mostly of one kind.
func randomQueue() []backend.Share {
	kind := rand.IntN(2)
	queue := make([]backend.Share, rand.IntN(12))
	for i := range queue {
		switch k := rand.IntN(12); {
		case k == 0:
			queue[i] = whole
		case k == 1 || kind == 0:
			queue[i] = backend.Reader
		default:
			n := 1 + rand.IntN(8)
			queue[i] = permits(1+rand.IntN(min(n, 3)), n)
		}
	}
	return queue
}

// TestAdmittedOfRandomQueues compares Admitted with the rule in words.
func TestAdmittedOfRandomQueues(t *testing.T) {
	modes := func(shares []backend.Share) (n map[string]int, weight int) {
		n = map[string]int{}
		for _, s := range shares {
			n[s.Mode()]++
			weight += s.Weight
		}
		return n, weight
	}
	for range 20_000 {
		queue := randomQueue()
		want := 0
		for want < len(queue) {
			n, weight := modes(queue[:want+1])
			last := queue[want]
			if len(n) > 1 || n["exclusive"] > 1 || last.Capacity > 0 && weight > last.Capacity {
				break
			}
			want++
		}
		if got := backend.Admitted(queue); got != want {
			t.Fatalf("%v: got %d, want %d", queue, got, want)
		}
	}
}

// TestAdmittedStays: a holder that leaves ends no other one, and every holder can have slots of
// its own capacity, given in the order of the queue.
func TestAdmittedStays(t *testing.T) {
	for range 20_000 {
		queue := randomQueue()
		held := queue[:backend.Admitted(queue)]
		var taken []int
		for _, s := range held {
			slots := s.FreeSlots(taken)
			if s.Capacity > 0 && len(slots) != s.Weight {
				t.Fatalf("%v: %v has the slots %v beside %v", held, s, slots, taken)
			}
			taken = append(taken, slots...)
		}
		for left := slices.Clone(held); len(left) > 0; {
			if n := backend.Admitted(left); n != len(left) {
				t.Fatalf("%v of %v: %d hold", left, held, n)
			}
			i := rand.IntN(len(left))
			left = slices.Delete(left, i, i+1)
		}
	}
}

// TestAdmittedInAnyOrder: of one capacity, or of readers, those that hold together do so in any
// order. It is not so of two capacities: 1/1 and then 1/2 hold, 1/2 and then 1/1 do not.
func TestAdmittedInAnyOrder(t *testing.T) {
	for range 5_000 {
		queue := make([]backend.Share, 1+rand.IntN(6))
		for i := range queue {
			queue[i] = permits(1+rand.IntN(3), 6)
		}
		held := queue[:backend.Admitted(queue)]
		rand.Shuffle(len(held), func(i, j int) { held[i], held[j] = held[j], held[i] })
		if n := backend.Admitted(held); n != len(held) {
			t.Fatalf("%v: %d hold", held, n)
		}
	}
}
