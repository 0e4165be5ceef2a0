package redislock

import (
	"context"
	"errors"
	"net"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

// followSentinels listens, until Close, to what each sentinel says of the master. The
// client library does so too, for the connections of its pool, and leaves a
// subscription where it is: at a server that hangs, or that is master no more and
// learns of it ten seconds later. All are listened to because the library asks any
// one of them for the master, and one knows of a failover before another.
func (b *Backend) followSentinels(sentinels []*redis.Options, master string) {
	for _, o := range sentinels {
		if !b.enter() {
			return
		}
		go func() {
			defer b.wg.Done()
			known := ""
			for backoff := 100 * time.Millisecond; b.life.Err() == nil; backoff = min(2*backoff, 30*time.Second) {
				if b.followSentinel(redis.NewSentinelClient(o), master, &known) {
					backoff = 100 * time.Millisecond
				}
				sleep(b.life, backoff)
			}
		}()
	}
}

// followSentinel returns when its connection fails, and whether there was one. known
// is the master's address.
func (b *Backend) followSentinel(c *redis.SentinelClient, master string, known *string) (heard bool) {
	defer c.Close()
	ps := c.Subscribe(b.life, "+switch-master")
	defer ps.Close()
	defer context.AfterFunc(b.life, func() { _ = ps.Close() })()
	for {
		m, err := ps.Receive(b.life)
		if err != nil {
			return heard
		}
		heard = true
		var addr []string
		switch m := m.(type) {
		case *redis.Subscription: // what happened before is asked for, what happens now is told
			if addr, err = c.GetMasterAddrByName(b.life, master).Result(); err != nil {
				return heard
			}
		case *redis.Message: // name, old address and port, new address and port
			if f := strings.Fields(m.Payload); len(f) == 5 && f[0] == master {
				addr = f[3:]
			}
		}
		if len(addr) != 2 {
			continue
		}
		now := net.JoinHostPort(addr[0], addr[1])
		if *known != "" && now != *known {
			b.subs.moved()
		}
		*known = now
	}
}

// moved has everything subscribed anew, at the server that is master now.
func (s *subscriptions) moved() {
	s.mu.Lock()
	l := s.listeners[nil]
	s.mu.Unlock()
	if l != nil {
		s.lost(l, errors.New("redis: another server is master"))
	}
}
