package lockcmd

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/interlock-go/lock"
	"github.com/interlock-go/lock/backend"
)

// share is the part of a lock that run asks for.
type share struct {
	read    bool
	permits permits
}

// mutex returns the share of the lock of a name.
func (s *share) mutex(c *lock.Client, name string) lock.Mutex {
	switch {
	case s.read:
		return c.RWMutex(name).RLocker()
	case s.permits.n > 0:
		return c.Semaphore(name, s.permits.n).Weighted(s.permits.k)
	}
	return c.Mutex(name)
}

func (s *share) check() error {
	if s.read && s.permits.n > 0 {
		return Usagef("--read and --permits exclude each other: want one of them")
	}
	return nil
}

// permits is a flag for k of n permits; zero means that it was not given.
type permits struct{ k, n int }

func (p *permits) String() string {
	if p.n == 0 {
		return ""
	}
	return fmt.Sprintf("%d/%d", p.k, p.n)
}
func (*permits) Type() string { return "K/N" }
func (p *permits) Set(s string) error {
	part, all, _ := strings.Cut(s, "/")
	k, err1 := strconv.Atoi(part)
	n, err2 := strconv.Atoi(all)
	out := lock.Share{Weight: k, Capacity: n}
	if err1 != nil || err2 != nil || n == 0 || out.Validate() != nil {
		return fmt.Errorf("want K/N with 1 <= K <= N <= %d, such as 1/10", backend.MaxPermits)
	}
	*p = permits{k, n}
	return nil
}

// slotsText returns the slots of a lease for the environment of a command.
func slotsText(slots []int) string {
	out := make([]string, len(slots))
	for i, s := range slots {
		out[i] = strconv.Itoa(s)
	}
	return strings.Join(out, ",")
}
