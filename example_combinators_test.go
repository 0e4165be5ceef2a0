package lock_test

import (
	"context"
	"fmt"
	"log"
	"time"

	"github.com/interlock-go/lock"
)

// A transfer needs both accounts. Whoever goes the other way names them in the other
// order, and waits for nobody in a circle.
func ExampleAll() {
	ctx := context.Background()
	c, _ := lock.Open(ctx, "mem:")
	defer c.Close(ctx)

	both := lock.All(c.Mutex("accounts/7"), c.Mutex("accounts/3"))
	l, err := both.Lock(ctx)
	if err != nil {
		log.Print(err)
		return
	}
	fmt.Println(l.Name())
	for _, part := range l.Parts() { // each has a fencing token of its own
		_, fenced := part.Token()
		fmt.Println(part.Name(), fenced)
	}
	fmt.Println(l.Unlock(ctx))
	// Output:
	// accounts/3+accounts/7
	// accounts/3 true
	// accounts/7 true
	// <nil>
}

// Every node runs this; one leads. Say by the metadata how the leader can be reached.
func ExampleCampaign() {
	ctx := context.Background()
	c, _ := lock.Open(ctx, "mem://cluster", lock.WithMetadata("10.0.0.7:8080"))
	defer c.Close(ctx)
	m := c.Mutex("scheduler")

	err := lock.Campaign(ctx, m, func(ctx context.Context) error {
		leader, err := lock.Leader(ctx, m)
		if err != nil {
			return err
		}
		fmt.Println("led by", leader.Metadata)
		return ctx.Err() // a real one works until ctx ends: then the leadership is lost, or given up
	})
	fmt.Println("resigned:", err)
	// Output:
	// led by 10.0.0.7:8080
	// resigned: <nil>
}

// Who leads, as others see it.
func ExampleWatchLeader() {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	c, _ := lock.Open(ctx, "mem:")
	defer c.Close(ctx)

	for leader, err := range lock.WatchLeader(ctx, c.Mutex("scheduler"), time.Second) {
		switch {
		case err != nil:
			fmt.Println("unknown:", err)
		case leader == nil:
			fmt.Println("nobody leads")
		default:
			fmt.Println("led by", leader.Metadata)
		}
		cancel() // one look is enough here
	}
	// Output: nobody leads
}

// A report each hour, on one node of all. Clocks may differ by less than a minute.
func ExampleEvery() {
	ctx, cancel := context.WithTimeout(context.Background(), 50*time.Millisecond) // the life of the program
	defer cancel()
	c, _ := lock.Open(ctx, "mem:")
	defer c.Close(ctx)

	m := c.Mutex("report", lock.WithTTL(2*time.Minute), lock.WithMinHold(time.Minute))
	err := lock.Every(ctx, m, time.Hour, func(ctx context.Context) error {
		return nil // the work; ctx ends if the lock is lost
	}, lock.WithOnRun(func(r lock.Run) { log.Println("ran", r.Tick, r.Took, r.Err) }))
	fmt.Println(err)
	// Output: lock: campaign "report": context deadline exceeded
}

// The lock moves from one backend to another: each process is given the phase in its
// configuration, and goes to the next when all have come to this one.
func ExampleMigrate() {
	ctx := context.Background()
	was, _ := lock.Open(ctx, "mem://redis-of-old")
	is, _ := lock.Open(ctx, "mem://etcd-of-new")
	defer was.Close(ctx)
	defer is.Close(ctx)

	var phase lock.Phase // decodes from YAML, JSON and flags, too
	_ = phase.UnmarshalText([]byte("both"))
	m := lock.Migrate(was.Mutex("nightly"), is.Mutex("nightly"), phase)
	l, err := m.Lock(ctx)
	fmt.Println(len(l.Parts()), err)
	_, err = was.Mutex("nightly").TryLock(ctx) // a process of the phase before
	fmt.Println(err != nil)
	_, err = is.Mutex("nightly").TryLock(ctx) // and of the phase after
	fmt.Println(err != nil, l.Unlock(ctx))
	// Output:
	// 2 <nil>
	// true
	// true <nil>
}
