package backend_test

import (
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
