package zklock

import (
	"context"
	"errors"

	"github.com/go-zookeeper/zk"
)

// WatchChanges watches the children of the node of a lock, or until there is such a node its
// creation. A watch that has not fired stays at the server until it fires or the session ends.
func (b *Backend) WatchChanges(ctx context.Context, key string, changed func()) error {
	s, err := b.anySession(ctx)
	if err != nil {
		return err
	}
	defer s.release()
	dir := b.lockNode(key)
	for {
		event, err := s.watchChildren(ctx, dir)
		if err != nil {
			return err
		}
		changed()
		select {
		case e := <-event:
			if e.Err != nil { // it is not watched any more
				return explain(e.Err, dir)
			}
		case <-s.done:
			return s.endErr()
		case <-ctx.Done():
			return endOf(ctx)
		}
	}
}

// watchChildren watches the children of a node, or its creation if it does not exist.
func (s *session) watchChildren(ctx context.Context, dir string) (<-chan zk.Event, error) {
	event, _, err := call(ctx, s, func(c *zk.Conn) (event <-chan zk.Event, err error) {
		for exists := true; exists; { // else it was deleted meanwhile
			if _, _, event, err = c.ChildrenW(dir); !errors.Is(err, zk.ErrNoNode) {
				return event, err
			}
			exists, _, event, err = c.ExistsW(dir)
			if err != nil {
				return nil, err
			}
		}
		return event, nil
	})
	return event, explain(err, dir)
}
