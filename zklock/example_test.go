package zklock_test

import (
	"fmt"

	"github.com/go-zookeeper/zk"

	"github.com/interlock-go/lock"
	"github.com/interlock-go/lock/zklock"
)

// A write that ZooKeeper itself refuses when the lock is no longer held.
func ExampleBackend_Guard() {
	ship := func(conn *zk.Conn, b *zklock.Backend, l *lock.Lease) error {
		held, err := b.Guard(l)
		if err != nil {
			return err // ErrLost
		}
		write := &zk.SetDataRequest{Path: "/orders/42", Data: []byte("shipped"), Version: -1}
		_, err = conn.Multi(held, write)
		return err // zk.ErrNoNode: the lock was lost, and nothing is written
	}
	_ = ship
}

// The node of a lock, for zkCli.sh or an ACL.
func ExampleNode() {
	fmt.Println(zklock.Node("", "interlock", "orders/42"))
	// Output: /interlock/orders%2F42
}
