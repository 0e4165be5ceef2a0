package redislock

import (
	"context"
	"net"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/interlock-go/lock/backend/call"
)

// followSentinels subscribes to the changes of the master on every sentinel, until
// Close. go-redis closes pooled connections to an old master, but leaves a subscription
// there: on a server that hangs, or that learns only 10 s later that it was demoted. It
// uses every sentinel, because go-redis may ask any of them for the master, and they
// learn of a failover at different times.
func (b *service) followSentinels(sentinels []*redis.Options, master string) {
	for _, o := range sentinels {
		b.srv.Go(func() {
			known := ""
			for backoff := 100 * time.Millisecond; b.srv.Context().Err() == nil; backoff = min(2*backoff, 30*time.Second) {
				if b.followSentinel(redis.NewSentinelClient(o), master, &known) {
					backoff = 100 * time.Millisecond
				}
				call.Sleep(b.srv.Context(), backoff)
			}
		})
	}
}

// followSentinel follows one sentinel until its connection fails. It reports whether the
// connection worked. known is the address of the master.
func (b *service) followSentinel(c *redis.SentinelClient, master string, known *string) (connected bool) {
	defer c.Close()
	ps := c.Subscribe(b.srv.Context(), "+switch-master")
	defer ps.Close()
	defer context.AfterFunc(b.srv.Context(), func() { _ = ps.Close() })()
	for {
		m, err := ps.Receive(b.srv.Context())
		if err != nil {
			return connected
		}
		connected = true
		var addr []string
		switch m := m.(type) {
		case *redis.Subscription: // the master may have changed before
			if addr, err = c.GetMasterAddrByName(b.srv.Context(), master).Result(); err != nil {
				return connected
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
			b.subs.mu.Lock()
			l := b.subs.listeners[nil]
			b.subs.mu.Unlock()
			if l != nil {
				b.subs.lost(l, errNewMaster)
			}
		}
		*known = now
	}
}
