package zklock

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/interlock-go/lock/backend/call"
	"github.com/interlock-go/lock/backend/places"
)

// usedUpError is the error of an attempt that got a sequence number after lastSeq. The
// lock's node is replaced when the holder and the waiters before lastSeq are gone.
type usedUpError struct{ queue places.Queue }

func (e *usedUpError) Error() string {
	return fmt.Sprintf("zookeeper: the sequence numbers of the lock's node are used up, and %d attempts still use it", len(e.queue.Places))
}

// replaceLockNode deletes a node of the attempt whose sequence number is after lastSeq. If
// the queue is empty it also deletes the lock's node, so that the next request creates both
// again, with sequence numbers from zero. Else it returns a *usedUpError.
func (e *entry) replaceLockNode(ctx context.Context, own string) error {
	e.unknown = true // until the node is deleted
	if err := e.ss.deleteIfExists(ctx, own); err != nil {
		return err
	}
	e.clear()
	for range 50 {
		q, err := e.ss.queue(ctx, e.dir, places.All, reading{})
		if err != nil {
			return err
		}
		if len(q.Places) > 0 {
			return &usedUpError{q}
		}
		if err := e.ss.deleteIfExists(ctx, e.dir); !errors.Is(err, zk.ErrNotEmpty) {
			return err
		}
		call.Sleep(ctx, 5*time.Millisecond+rand.N(10*time.Millisecond)) // others are about to delete their nodes
	}
	return fmt.Errorf("zookeeper: node %.200q: the sequence numbers are used up, and the node cannot be replaced: delete its children", e.dir)
}

// awaitEmptyQueue waits until the last of the queue is gone, and deletes the lock's node
// if it can: other waiters do the same.
func (ss *session) awaitEmptyQueue(ctx context.Context, dir string, q places.Queue) error {
	last, err := ss.watch(ctx, q.Places[len(q.Places)-1].ID)
	if err != nil {
		return err
	}
	if last.stat != nil {
		select {
		case <-last.event:
		case <-ss.done:
			return ss.endErr()
		case <-ctx.Done():
			return endOf(ctx)
		}
	}
	return ss.deleteIfEmpty(ctx, dir)
}
