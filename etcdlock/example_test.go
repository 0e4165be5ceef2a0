package etcdlock_test

import (
	"context"
	"fmt"
	"log"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/interlock-go/lock"
	"github.com/interlock-go/lock/etcdlock"
)

// A write that etcd itself refuses when the lock is no longer held.
func ExampleBackend_OwnerCmp() {
	ctx := context.Background()
	client, err := clientv3.New(clientv3.Config{
		Endpoints: []string{"localhost:2379"}, DialKeepAliveTime: 10 * time.Second, DialKeepAliveTimeout: 3 * time.Second,
	})
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()
	b, err := etcdlock.New(client, etcdlock.WithPrefix("shop"))
	if err != nil {
		log.Print(err)
		return
	}
	c, err := lock.New(b)
	if err != nil {
		log.Print(err)
		return
	}
	defer c.Close(ctx)

	l, err := c.Mutex("orders/42").Lock(ctx)
	if err != nil {
		log.Print(err)
		return
	}
	defer func() { _ = l.Unlock(ctx) }()
	token, _ := l.Token()
	r, err := client.Txn(ctx).
		If(b.OwnerCmp(l.Name(), l.Owner(), token)).
		Then(clientv3.OpPut("orders/42/state", "shipped")).
		Commit()
	if err == nil && !r.Succeeded {
		log.Print("the lock was lost: nothing was written")
	}
}

// The keys of a lock, for "etcdctl get --prefix" or a rule of the server's access control.
func ExampleFolder() {
	fmt.Println(etcdlock.Folder("shop", "orders/42"))
	// Output: shop/orders%2F42/
}
