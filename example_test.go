package lock_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"net/http"
	"net/http/httptest"
	"time"

	"github.com/interlock-go/lock"
	"github.com/interlock-go/lock/backend"
	_ "github.com/interlock-go/lock/memlock"
)

// The backend is a line of configuration; the rest of the program does not know it.
func Example() {
	ctx := context.Background()
	c, err := lock.Open(ctx, "mem://shop?ttl=30s") // or redis://..., file:///...
	if err != nil {
		log.Fatal(err)
	}
	defer c.Close(ctx)

	err = lock.Do(ctx, c.Mutex("orders/42"), func(ctx context.Context) error {
		fmt.Println("shipping, and no other process is")
		return ctx.Err() // ends if the lock is lost
	})
	fmt.Println(err)
	// Output:
	// shipping, and no other process is
	// <nil>
}

// A request waits for a lock for a bounded time, and then works for as long as it needs.
func ExampleWithWait() {
	ctx := context.Background()
	c, _ := lock.Open(ctx, "mem:")
	defer c.Close(ctx)
	other, _ := c.Mutex("orders/42").Lock(ctx)

	handle := func() error {
		return lock.Do(ctx, c.Mutex("orders/42"), func(ctx context.Context) error {
			time.Sleep(50 * time.Millisecond) // the work
			return ctx.Err()
		}, lock.WithWait(10*time.Millisecond))
	}
	err := handle()
	fmt.Println(errors.Is(err, lock.ErrWaitLimit), errors.Is(err, lock.ErrLocked), errors.Is(err, context.DeadlineExceeded))
	_ = other.Unlock(ctx)
	fmt.Println(handle())
	// Output:
	// true true false
	// <nil>
}

// The function of Do passes the fencing token to the resource that it writes to.
func ExampleFromContext() {
	ctx := context.Background()
	c, _ := lock.Open(ctx, "mem:")
	defer c.Close(ctx)
	err := lock.Do(ctx, c.Mutex("ledger"), func(ctx context.Context) error {
		token, ok := lock.FromContext(ctx).Token()
		fmt.Println("fenced:", ok && token > 0)
		return nil
	})
	fmt.Println(err)
	// Output:
	// fenced: true
	// <nil>
}

// A lease can be held for longer than a function runs. Its token goes to the
// resource, which refuses a lower one than it has seen.
func ExampleMutex_Lock() {
	ctx := context.Background()
	c, _ := lock.Open(ctx, "mem:")
	defer c.Close(ctx)

	wait, cancel := context.WithTimeout(ctx, 5*time.Second) // bounds the wait, not the hold
	defer cancel()
	lease, err := c.Mutex("reports").Lock(wait)
	if err != nil {
		fmt.Println(err) // says who holds it
		return
	}
	fence, ok := lease.Token()
	fmt.Println("fenced:", ok && fence > 0)
	select {
	case <-lease.Done():
		fmt.Println("lost:", lease.Err())
	default:
		fmt.Println("unlocked:", lease.Unlock(ctx))
	}
	// Output:
	// fenced: true
	// unlocked: <nil>
}

// TryLock says who holds the lock.
func ExampleMutex_TryLock() {
	ctx := context.Background()
	c, _ := lock.Open(ctx, "mem:", lock.WithMetadata("the nightly job"))
	defer c.Close(ctx)
	lease, _ := c.Mutex("db").TryLock(ctx)
	defer func() { _ = lease.Unlock(ctx) }()

	_, err := c.Mutex("db").TryLock(ctx)
	var locked *lock.LockedError
	if errors.As(err, &locked) {
		fmt.Println("held by", locked.Holder.Metadata)
	}
	// Output: held by the nightly job
}

// A deployment that cannot do without a property refuses to start without it.
func ExampleWithRequire() {
	_, err := lock.Open(context.Background(), "mem:", lock.WithRequire(backend.RequireFIFO, backend.RequireMachineScope))
	fmt.Println(err)
	// Output: lock: open on mem: required scope=machine: unsupported operation by backend mem
}

// A health check of the lock service.
func ExampleClient_Ping() {
	c, _ := lock.Open(context.Background(), "mem:")

	health := func(w http.ResponseWriter, r *http.Request) {
		ctx, cancel := context.WithTimeout(r.Context(), time.Second)
		defer cancel()
		if err := c.Ping(ctx); err != nil {
			http.Error(w, err.Error(), http.StatusServiceUnavailable) // shows no password
			return
		}
		fmt.Fprintln(w, "ok")
	}

	for range 2 {
		w := httptest.NewRecorder()
		health(w, httptest.NewRequest(http.MethodGet, "/health/lock", nil))
		fmt.Print(w.Code, " ", w.Body)
		_ = c.Close(context.Background())
	}
	// Output:
	// 200 ok
	// 503 lock: ping on mem: client closed
}

func ExampleVersion() {
	fmt.Println(lock.Version())
	// Output: (devel)
}

// A transfer needs both accounts. A transfer in the other direction names them in the other
// order, and no deadlock is possible.
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

// Requests read a catalog at the same time; a refresh excludes them for as long as it writes,
// and then reads beside them what it wrote.
func ExampleRWMutex() {
	ctx := context.Background()
	c, err := lock.Open(ctx, "mem:")
	if err != nil {
		log.Fatal(err)
	}
	defer c.Close(ctx)
	rw := c.RWMutex("catalog")

	refresh, _ := rw.Lock(ctx)
	_, err = rw.TryRLock(ctx)
	fmt.Println("a reader beside the writer:", errors.Is(err, lock.ErrLocked))
	fmt.Println("downgrade:", refresh.Downgrade(ctx)) // nothing else writes in between
	reader, err := rw.RLock(ctx)
	fmt.Println("a reader beside the reader:", err)
	_, err = rw.TryLock(ctx)
	fmt.Println("a writer beside readers:", errors.Is(err, lock.ErrLocked))
	fmt.Println(reader.Unlock(ctx), refresh.Unlock(ctx))
	// Output:
	// a reader beside the writer: true
	// downgrade: <nil>
	// a reader beside the reader: <nil>
	// a writer beside readers: true
	// <nil> <nil>
}

// At most three exports run at a time, over all processes.
func ExampleSemaphore() {
	ctx := context.Background()
	c, err := lock.Open(ctx, "mem:")
	if err != nil {
		log.Fatal(err)
	}
	defer c.Close(ctx)
	exports := c.Semaphore("exports", 3)

	large, _ := exports.Acquire(ctx, 2)
	err = lock.Do(ctx, exports, func(ctx context.Context) error {
		_, err := exports.TryAcquire(context.Background(), 1)
		fmt.Println("a fourth:", errors.Is(err, lock.ErrLocked))
		return ctx.Err() // not nil if the permit was lost
	})
	fmt.Println(err, large.Unlock(ctx))
	// Output:
	// a fourth: true
	// <nil> <nil>
}

// A worker of a fixed number of workers gets a number that no other worker has.
func ExampleLease_Slots() {
	ctx := context.Background()
	c, err := lock.Open(ctx, "mem:")
	if err != nil {
		log.Fatal(err)
	}
	defer c.Close(ctx)
	workers := c.Semaphore("workers", 16)

	first, _ := workers.Acquire(ctx, 1)
	second, _ := workers.Acquire(ctx, 1)
	fmt.Println(first.Slots(), second.Slots())
	fmt.Println(first.Unlock(ctx)) // or it was killed, and its lease expired
	third, _ := workers.Acquire(ctx, 1)
	fmt.Println(third.Slots())
	// Output:
	// [0] [1]
	// <nil>
	// [0]
}
