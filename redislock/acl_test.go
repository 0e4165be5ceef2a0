package redislock

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/interlock-go/lock/backend"
	"github.com/interlock-go/lock/backend/call"
	"github.com/interlock-go/lock/redislock/internal/server"
)

// aclRules are those of the package documentation, Permissions.
const aclRules = "resetkeys resetchannels -@all ~lock:* ~{lock:* &lock:* &{lock:* " +
	"+evalsha +eval +script|load +get +set +del +exists +pttl +pexpire +type +time " +
	"+hget +hset +hdel +hvals +zadd +zrem +zrange +zrangebyscore +zscore +zcard +publish +spublish +subscribe +ssubscribe +sunsubscribe +pubsub|numsub +pubsub|shardnumsub"

// setRules gives the user app these rules and no others.
func setRules(t *testing.T, admin redis.UniversalClient, rules string) {
	t.Helper()
	args := []any{"acl", "setuser", "app", "reset", "on", ">app-secret"}
	for f := range strings.FieldsSeq(rules) {
		args = append(args, f)
	}
	must(t, admin.Do(t.Context(), args...).Err())
}

func TestLeastPrivilege(t *testing.T) {
	addr := private(t)
	admin := client(t, addr)
	rules := func(s string) { setRules(t, admin, s) }
	rules(aclRules)
	url := "redis://app:app-secret@" + addr
	cycle := func(b *Backend) error {
		g, err := b.TryAcquire(t.Context(), request("k{"))
		if err != nil {
			return err
		}
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		c1, c2 := make(chan acquired, 1), request("k{")
		waiting := make(chan bool, 1)
		c2.OnWait = func(*backend.LockedError) { waiting <- true }
		go func() {
			g, err := b.Acquire(ctx, c2)
			c1 <- acquired{Grant: g, Err: err}
		}()
		select {
		case <-waiting:
		case a := <-c1:
			return a.Err
		}
		if err := g.Renew(t.Context(), time.Second); err != nil {
			return err
		}
		if err := g.Release(t.Context()); err != nil {
			return err
		}
		a := <-c1
		if a.Err != nil {
			return a.Err
		}
		if _, err := b.Break(t.Context(), "k{", ""); err != nil {
			return err
		}
		return b.Abandon(t.Context(), request("k{"))
	}
	b := openURL(t, url)
	must(t, cycle(b))
	if c := strings.Join(b.Capabilities().Caveats, " "); !strings.Contains(c, "INFO was not permitted") {
		t.Error(c)
	}
	// what is optional is named when it is missing
	if err := b.List(t.Context(), func(backend.Info) bool { return true }); err == nil || !strings.Contains(err.Error(), "scan") || !strings.Contains(err.Error(), "Permissions") {
		t.Errorf("List: %v", err)
	}
	if err := b.Ping(t.Context()); err == nil || !strings.Contains(err.Error(), "ping") {
		t.Errorf("Ping: %v", err)
	}
	// each of the others is needed; without it something fails, and says so
	needed := strings.Fields(strings.ReplaceAll(aclRules, "+", ""))[7:]
	for _, cmd := range needed {
		switch cmd {
		case "eval", "spublish", "ssubscribe", "sunsubscribe", "type", "script|load", "pubsub|shardnumsub",
			"hdel", "hvals", "zrangebyscore", "zcard":
			continue // of shares, see TestLeastPrivilegeOfShares; after SCRIPT FLUSH; in a cluster; for keys of another type; when EVAL is not permitted
		}
		rules(aclRules + " -" + cmd)
		u, err := backend.ParseURL(url)
		must(t, err)
		o, err := backend.Open(t.Context(), u)
		if err == nil {
			ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
			err = cycle(o.(*Backend))
			_ = o.Close(ctx)
			cancel()
		}
		if err == nil || strings.Contains(err.Error(), "secret") {
			t.Errorf("without %s: %v", cmd, err)
		}
		must(t, admin.FlushAll(t.Context()).Err())
	}
	rules(strings.ReplaceAll(aclRules, "&lock:* ", "") + " +info +scan +ping")
	if err := openError(t, url); !strings.Contains(err.Error(), "NOPERM") {
		t.Errorf("without the channel: %v", err)
	}
	rules(aclRules + " +info +scan +ping")
	b = openURL(t, url)
	must(t, b.List(t.Context(), func(backend.Info) bool { return true }))
	must(t, b.Ping(t.Context()))
	if c := strings.Join(b.Capabilities().Caveats, " "); strings.Contains(c, "not permitted") {
		t.Error(c)
	}
	rules(strings.ReplaceAll(aclRules, "~lock:*", "~other:*"))
	if _, err := b.TryAcquire(t.Context(), request("k")); err == nil || !strings.Contains(err.Error(), "NOPERM") || isUncertain(err) {
		t.Errorf("without the key: %v", err)
	}
}

// A script that fails in the middle leaves a short lease, and its error is ErrUncertain.
func TestScriptFailsMidway(t *testing.T) {
	addr := private(t)
	c := client(t, addr)
	args := []any{"acl", "setuser", "app", "reset", "on", ">app-secret"}
	for f := range strings.FieldsSeq(aclRules) {
		args = append(args, f)
	}
	must(t, c.Do(t.Context(), append(args, "-publish")...).Err())
	b := openURL(t, "redis://app:app-secret@"+addr)
	g := take(t, b, request("k"))
	ctx, cancel := context.WithCancel(t.Context())
	ch := enqueue(ctx, t, b, request("k"))
	err := g.Release(t.Context())
	if !isUncertain(err) || !strings.Contains(err.Error(), "Permissions") {
		t.Errorf("release: %v", err)
	}
	if left := c.PTTL(t.Context(), "lock:k").Val(); left <= 0 || left > backend.MaxProvisionalTTL+time.Millisecond {
		t.Errorf("left %v", left)
	}
	cancel()
	<-ch
	var sending call.Sending
	sending.Write()
	for text, want := range map[string]bool{
		"ERR ACL failure in script: User app has no permissions to run the 'x' command script: ab, on @user_script:53.": true,
		"ERR Error running script (call to f_ab): @user_script:5: @user_script: 5: WRONGTYPE Operation":                 true,
		"OOM command not allowed when used memory > 'maxmemory'. script: ab, on @user_script:32.":                       false,
		"NOPERM No permissions to access a key": false,
	} {
		if got := isUncertain(server.Classify(serverError(text), &sending)); got != want {
			t.Errorf("%s: uncertain %v", text, got)
		}
	}
}

type serverError string

func (e serverError) Error() string { return string(e) }

func (serverError) RedisError() {}
