package redislock

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/interlock-go/lock/backend"
	"github.com/interlock-go/lock/redislock/internal/protocol"
)

func takeMany(t testing.TB, b *Backend, n int) []backend.Grant {
	t.Helper()
	held := make([]backend.Grant, n)
	for i := range held {
		held[i] = take(t, b, request(fmt.Sprint("k", i)))
	}
	return held
}

func batchOf(ttl time.Duration, held ...backend.Grant) (all []backend.Renewal) {
	for _, g := range held {
		all = append(all, backend.Renewal{Grant: g, TTL: ttl})
	}
	return all
}

// pipelines counts the pipelines of a client, and their commands.
type pipelines struct {
	redis.Hook
	mu    sync.Mutex
	sizes []int
	waits int
	last  time.Time // when one was handed to the connection
}

func (p *pipelines) DialHook(next redis.DialHook) redis.DialHook { return next }

func (p *pipelines) ProcessHook(next redis.ProcessHook) redis.ProcessHook { return next }

func (p *pipelines) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		p.mu.Lock()
		p.sizes, p.last = append(p.sizes, len(cmds)), time.Now()
		for _, c := range cmds {
			if c.Name() == "wait" {
				p.waits++
			}
		}
		p.mu.Unlock()
		return next(ctx, cmds)
	}
}

// Each grant of a batch has its own reply, in one round trip.
func TestRenewBatch(t *testing.T) {
	addr := private(t)
	own, c := client(t, addr), client(t, addr)
	sent := &pipelines{}
	own.AddHook(sent)
	b, err := New(own)
	must(t, err)
	defer closeBackend(t, b)
	const n = 256
	held := takeMany(t, b, n)
	must(t, held[3].Release(t.Context()))
	_, err = b.Break(t.Context(), "k77", "")
	must(t, err)
	must(t, held[200].Release(t.Context()))
	successor := take(t, b, request("k200"))
	must(t, c.Del(t.Context(), "lock:k255").Err())
	lost := map[int]bool{3: true, 77: true, 200: true, 255: true}
	for round, flush := range []bool{false, true} {
		if flush {
			must(t, c.ScriptFlush(t.Context()).Err())
		}
		ttl := time.Duration(round+1) * time.Minute
		evals, scripts := calls(t, c, "eval"), calls(t, c, "eval", "evalsha")
		sent.sizes = nil
		before := time.Now()
		for i, err := range b.RenewBatch(t.Context(), batchOf(ttl, held...)) {
			if lost[i] {
				if !errors.Is(err, backend.ErrLost) {
					t.Errorf("%d, which is lost: %v", i, err)
				}
				continue
			}
			if err != nil {
				t.Fatalf("%d: %v", i, err)
			}
			if until := held[i].Until(); until.Before(before.Add(ttl)) || until.After(sent.last.Add(ttl)) {
				t.Errorf("%d: until %v from the sending, want no more than %v", i, until.Sub(sent.last), ttl)
			}
			if left := c.PTTL(t.Context(), fmt.Sprint("lock:k", i)).Val(); left < ttl-20*time.Second {
				t.Errorf("%d: the server keeps it for %v", i, left)
			}
		}
		trips, known := 1, 0
		if flush {
			trips, known = 2, 1 // refused, and then sent by source, which loads it for the others
		}
		if len(sent.sizes) != trips || calls(t, c, "eval")-evals != known {
			t.Errorf("%d round trips and %d by source, want %d and %d", len(sent.sizes), calls(t, c, "eval")-evals, trips, known)
		}
		if got := calls(t, c, "eval", "evalsha") - scripts; got != n*trips {
			t.Errorf("%d scripts for %d grants", got, n)
		}
	}
	if left := c.PTTL(t.Context(), "lock:k200").Val(); left > 10*time.Second {
		t.Errorf("the successor of a lost one is kept for %v", left)
	}
	must(t, successor.Renew(t.Context(), time.Minute))
	other := newBackend(t, newPrefix())
	errs := b.RenewBatch(t.Context(), batchOf(time.Minute, take(t, other, request("k0")), held[0]))
	if !errors.Is(errs[0], backend.ErrInvalid) || errs[1] != nil {
		t.Errorf("with a grant of another backend: %v", errs)
	}
}

// A batch without replies is ErrUncertain for each renewal, and moves no Until.
func TestRenewBatchWithoutAnswer(t *testing.T) {
	px := newProxy(t, sharedServer(t))
	p := newPrefix()
	b := openURL(t, "redis://"+px.Addr+"?prefix="+p)
	held := takeMany(t, b, 20)
	var untils []time.Time
	for _, g := range held {
		untils = append(untils, g.Until())
	}
	unanswered := func(what string, errs []error, also error) {
		t.Helper()
		for i, err := range errs {
			if !isUncertain(err) || (also != nil && !errors.Is(err, also)) {
				t.Errorf("%s, %d: %v", what, i, err)
			}
			if held[i].Until() != untils[i] {
				t.Errorf("%s moved Until of %d", what, i)
			}
		}
		if len(errs) != len(held) {
			t.Errorf("%s: %d errors", what, len(errs))
		}
	}
	px.Next(theScripts.renew, drop)
	unanswered("a dropped reply", b.RenewBatch(t.Context(), batchOf(time.Minute, held...)), nil)
	px.Next(theScripts.renew, never)
	unanswered("a cut connection", b.RenewBatch(t.Context(), batchOf(time.Minute, held...)), nil)

	arrived, deliver := make(chan bool), make(chan bool)
	px.Set(onScript(theScripts.renew, func() action { px.Set(nil); close(arrived); <-deliver; return pass }))
	ctx, cancel := context.WithCancel(t.Context())
	go func() { <-arrived; cancel() }()
	unanswered("a hung server", b.RenewBatch(ctx, batchOf(time.Hour, held...)), context.Canceled)
	c := client(t, sharedServer(t))
	close(deliver)
	eventually(t, "it was executed", func() bool { return c.PTTL(t.Context(), p+":k19").Val() > 30*time.Minute })
	for i, g := range held {
		if g.Until() != untils[i] {
			t.Errorf("a late answer moved Until of %d", i)
		}
	}
	for i, err := range b.RenewBatch(t.Context(), batchOf(time.Minute, held...)) {
		if err != nil {
			t.Errorf("%d after all of that: %v", i, err)
		}
	}
}

// A batch has one WAIT.
func TestRenewBatchWaitsForReplicas(t *testing.T) {
	master, replica := replicated(t)
	own := client(t, master)
	sent := &pipelines{}
	own.AddHook(sent)
	b, err := New(own, WithWaitReplicas(1, 2*time.Second))
	must(t, err)
	defer closeBackend(t, b)
	held := takeMany(t, b, 20)
	must(t, client(t, master).Del(t.Context(), "lock:k7").Err())
	renew := func(ttl time.Duration) []error {
		sent.sizes, sent.waits = nil, 0
		errs := b.RenewBatch(t.Context(), batchOf(ttl, held...))
		if len(sent.sizes) != 1 || sent.waits != 1 {
			t.Errorf("%d round trips and %d WAITs", len(sent.sizes), sent.waits)
		}
		return errs
	}
	c := client(t, replica)
	for i, err := range renew(time.Minute) {
		if i == 7 {
			continue
		}
		must(t, err)
		if left := c.PTTL(t.Context(), fmt.Sprint("lock:k", i)).Val(); left < 50*time.Second {
			t.Errorf("%d: the replica keeps it for %v", i, left)
		}
	}
	until := held[0].Until()
	detach(t, master, replica)
	for i, err := range renew(time.Hour) {
		switch {
		case i == 7 && errors.Is(err, backend.ErrLost):
		case i == 7 || !isUncertain(err) || !strings.Contains(err.Error(), "0 of 1"):
			t.Errorf("%d without the replica: %v", i, err)
		}
	}
	if held[0].Until() != until {
		t.Error("a renewal without replicas moved Until")
	}
}

// A client of the caller, with three retries, sends no request to downgrade and no batch of renewals twice.
func TestDroppedRepliesOfDowngradeAndBatch(t *testing.T) {
	px := newProxy(t, sharedServer(t))
	own := redis.NewClient(&redis.Options{Addr: px.Addr})
	defer own.Close()
	b, err := New(own, WithPrefix(newPrefix()))
	must(t, err)
	defer closeBackend(t, b)
	g, kept := take(t, b, request("k")), takeMany(t, b, 2)
	for script, send := range map[*protocol.Script]func() error{
		endScript:        func() error { return g.(backend.Downgrader).Downgrade(t.Context()) },
		theScripts.renew: func() error { return errors.Join(b.RenewBatch(t.Context(), batchOf(time.Minute, kept...))...) },
	} {
		var sent atomic.Int64
		px.Set(onScript(script, func() action { sent.Add(1); return drop }))
		if err := send(); !isUncertain(err) {
			t.Errorf("without a reply: %v", err)
		}
		px.Set(nil)
		if n := sent.Load(); n != 1 {
			t.Errorf("sent %d times", n)
		}
	}
	must(t, g.(backend.Downgrader).Downgrade(t.Context()))
	for _, g := range append(kept, g) {
		must(t, g.Release(t.Context()))
	}
}
