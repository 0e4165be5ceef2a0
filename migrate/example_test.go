package migrate_test

import (
	"context"
	"fmt"

	"github.com/interlock-go/lock"
	_ "github.com/interlock-go/lock/memlock"
	"github.com/interlock-go/lock/migrate"
)

// Each process reads the phase from its configuration. The next phase begins when all
// processes are in this one.
func ExampleNew() {
	ctx := context.Background()
	was, _ := lock.Open(ctx, "mem://redis-of-old")
	is, _ := lock.Open(ctx, "mem://etcd-of-new")
	defer was.Close(ctx)
	defer is.Close(ctx)

	var phase migrate.Phase // decodes from YAML, JSON and flags
	_ = phase.UnmarshalText([]byte("both"))
	m := migrate.New(was.Mutex("nightly"), is.Mutex("nightly"), phase)
	l, err := m.Lock(ctx)
	fmt.Println(len(l.Parts()), err)
	_, err = was.Mutex("nightly").TryLock(ctx) // a process in the phase before
	fmt.Println(err != nil)
	_, err = is.Mutex("nightly").TryLock(ctx) // and in the phase after
	fmt.Println(err != nil, l.Unlock(ctx))
	// Output:
	// 2 <nil>
	// true
	// true <nil>
}
