package zklock

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"path"
	"time"

	"github.com/go-zookeeper/zk"
)

// usedUpError is the error of an attempt that got a sequence number after lastSeq. The
// lock's node is replaced when the holder and the waiters before lastSeq are gone.
type usedUpError struct{ queue []child }

func (e *usedUpError) Error() string {
	return fmt.Sprintf("zookeeper: the sequence numbers of the lock's node are used up, and %d attempts still use it", len(e.queue))
}

// inOrder reports whether the node is a place in the queue.
func inOrder(node string) bool {
	c, ok := parseChild(path.Base(node))
	return ok && c.inOrder()
}

// replaceLockNode deletes a node of the attempt whose sequence number is after lastSeq. If
// the queue is empty it also deletes the lock's node, so that the next request creates both
// again, with sequence numbers from zero. Else it returns a *usedUpError.
func (a *attempt) replaceLockNode(ctx context.Context, own string) error {
	a.createUnknown = true // until the node is deleted
	if err := a.s.deleteIfExists(ctx, own); err != nil {
		return err
	}
	a.clearNode()
	var names []string
	for range 50 {
		var err error
		if names, err = a.s.children(ctx, a.dir); err != nil {
			return err
		}
		if q := queue(names); len(q) > 0 {
			return &usedUpError{q}
		}
		if err := a.s.deleteIfExists(ctx, a.dir); !errors.Is(err, zk.ErrNotEmpty) {
			return err
		}
		sleep(ctx, 5*time.Millisecond+rand.N(10*time.Millisecond)) // others are about to delete their nodes
	}
	return fmt.Errorf("zookeeper: node %.200q: the sequence numbers are used up, and the node cannot be replaced: delete its children %.200q", a.dir, names)
}

// awaitEmptyQueue waits until the last of the queue is gone, and deletes the lock's node
// if it can: other waiters do the same.
func (w *waiter) awaitEmptyQueue(ctx context.Context, q []child) error {
	last, err := w.a.s.watch(ctx, w.a.dir+"/"+q[len(q)-1].node)
	if err != nil {
		return err
	}
	w.queued, w.lastContact = true, time.Now()
	if last.stat != nil {
		w.reportWaiting(newHolder(q[0], node{}))
		if _, err := w.awaitOne(ctx, last.event); err != nil {
			return err
		}
	}
	return w.a.s.deleteIfEmpty(ctx, w.a.dir)
}
