package redislock

import (
	"context"
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/interlock-go/lock/backend"
	"github.com/interlock-go/lock/backend/queue"
	"github.com/interlock-go/lock/internal/locktest"
	"github.com/interlock-go/lock/redislock/internal/redistest"
)

var rawDel = redis.NewScript(`if redis.call("get",KEYS[1])==ARGV[1] then return redis.call("del",KEYS[1]) else return 0 end`)

func serverCPU(pid string) float64 {
	s, _ := os.ReadFile("/proc/" + pid + "/stat")
	f := strings.Fields(string(s[strings.LastIndexByte(string(s), ')')+2:]))
	u, _ := strconv.ParseFloat(f[11], 64)
	k, _ := strconv.ParseFloat(f[12], 64)
	return (u + k) / 100
}

func TestCostFree(t *testing.T) {
	addr, stop, err := redistest.Start(locktest.FreePort())
	if err != nil {
		t.Fatal(err)
	}
	defer stop()
	c := redis.NewClient(&redis.Options{Addr: addr, PoolSize: 64})
	defer c.Close()
	bg := context.Background()
	info := c.Info(bg, "server").Val()
	_, pid, _ := strings.Cut(info, "process_id:")
	pid, _, _ = strings.Cut(pid, "\r")
	p := newProcess(t, c, "lock", "p", theScripts, true)
	owner := strings.Repeat("0123456789abcdef", 2)
	ops := map[string]func(string){
		"service": func(n string) {
			r := backend.Request{Key: n, Owner: owner, TTL: 30 * time.Second, Metadata: "pid 1234 on host"}
			a, err := p.Acquire(bg, queue.Attempt{Request: r, Mode: queue.NoQueue})
			if err != nil || !a.Granted {
				panic(fmt.Sprint(a, err))
			}
			if e := p.End(bg, []queue.End{{Request: r}})[0]; e.Err != nil || !e.Held {
				panic(fmt.Sprint(e))
			}
		},
		"raw": func(n string) {
			c.SetNX(bg, n, owner, 30*time.Second)
			rawDel.Run(bg, c, []string{n}, owner).Err()
		},
	}
	for name, f := range ops {
		f("x")
		t.Logf("%s: %.0f allocs", name, testing.AllocsPerRun(200, func() { f("x") }))
	}
	for range 3 {
		for name, f := range ops {
			var n atomic.Int64
			end := time.Now().Add(2 * time.Second)
			s0 := serverCPU(pid)
			t0 := time.Now()
			var wg sync.WaitGroup
			for w := range 64 {
				wg.Go(func() {
					for time.Now().Before(end) {
						f(fmt.Sprint("k", w))
						n.Add(1)
					}
				})
			}
			wg.Wait()
			t.Logf("%-10s %8.0f/s server %.1f us", name, float64(n.Load())/time.Since(t0).Seconds(), (serverCPU(pid)-s0)/float64(n.Load())*1e6)
		}
	}
}
