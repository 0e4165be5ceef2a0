package certmagiclock_test

import (
	"context"
	"fmt"
	"log"
	"os"

	"github.com/caddyserver/certmagic"

	"github.com/interlock-go/lock"
	"github.com/interlock-go/lock/adapters/certmagiclock"
	_ "github.com/interlock-go/lock/memlock"
)

// Files hold the certificates, and a lock service excludes the nodes that obtain them.
func ExampleNew() {
	ctx := context.Background()
	c, err := lock.Open(ctx, "mem:")
	if err != nil {
		log.Fatal(err)
	}
	defer c.Close(ctx)
	dir, err := os.MkdirTemp("", "certificates")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer os.RemoveAll(dir)

	storage := certmagiclock.New(&certmagic.FileStorage{Path: dir}, c.Mutex) // for certmagic.Default.Storage
	fmt.Println(storage.Lock(ctx, "example.com"))
	fmt.Println(storage.TryLock(ctx, "example.com"))
	fmt.Println(storage.Unlock(ctx, "example.com"))
	// Output:
	// <nil>
	// false <nil>
	// <nil>
}
