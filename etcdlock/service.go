package etcdlock

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/interlock-go/lock/backend"
	"github.com/interlock-go/lock/backend/call"
	"github.com/interlock-go/lock/backend/places"
)

const (
	maxTTL   = backend.MaxTTL // the servers accept up to 9,000,000,000 s
	minPause = 50 * time.Millisecond
	// maxOps is how many keys a transaction has, below --max-txn-ops of the servers.
	maxOps = 100
)

// service is the places.Service of etcd: a place is a key, and a session a lease.
type service struct {
	client     *clientv3.Client
	ownsClient bool // Close closes it
	conns      *connections
	opt        options
	root       string // prefix of all keys
	minTTL     time.Duration
	life       *call.Life
	events     places.Events
	batches    *batches
	removing   chan struct{} // requests that delete several keys, without a reply
	keeper     keeper
	contended  memory // folders that were not free when they were last asked for

	mu       sync.Mutex // guards the fields below
	sessions map[clientv3.LeaseID]*session
}

var (
	_ places.Service = (*service)(nil)
	_ places.Viewer  = (*service)(nil)
)

// do calls f, and Close waits for it. A server without a leader refuses the requests of f at once, so that the client
// uses another.
func (s *service) do(ctx context.Context, f func(context.Context) error) error {
	if err := ctx.Err(); err != nil {
		return backend.NotExecuted(err)
	}
	if !s.life.Enter() {
		return backend.ErrClosed
	}
	defer s.life.Leave()
	return f(clientv3.WithRequireLeader(ctx))
}

// undated is a context without its deadline, which gRPC would send to the server. It ends as before.
type undated struct{ context.Context }

func (undated) Deadline() (time.Time, bool) { return time.Time{}, false }

// Read implements places.Service.
func (s *service) Read(ctx context.Context, key string, upTo uint64, last int) (places.Queue, error) {
	opts := []clientv3.OpOption{clientv3.WithPrefix(), clientv3.WithMaxCreateRev(int64(upTo))}
	if last > 0 {
		opts = append(opts, newestFirst, clientv3.WithLimit(int64(last)))
	}
	r, err := s.client.Get(clientv3.WithRequireLeader(ctx), s.folder(key), opts...)
	if err != nil {
		return places.Queue{}, s.readError(ctx, err)
	}
	return newQueue(s.folder(key), r.Kvs, r.More), nil
}

// Check implements places.Service. A key that was not put again has the revision that the caller knows.
func (s *service) Check(ctx context.Context, all []places.Place) ([]places.Change, error) {
	changes := make([]places.Change, 0, len(all))
	for part := range slices.Chunk(all, maxOps) {
		var same []clientv3.Cmp
		var read []clientv3.Op
		for _, p := range part {
			same = append(same, clientv3.Compare(clientv3.ModRevision(p.ID), "=", int64(p.Version)))
			read = append(read, clientv3.OpGet(p.ID, clientv3.WithKeysOnly()))
		}
		r, err := s.client.Txn(clientv3.WithRequireLeader(ctx)).If(same...).Else(read...).Commit()
		if err != nil {
			return nil, s.readError(ctx, err)
		}
		for i, p := range part {
			c := places.Unchanged
			if !r.Succeeded {
				kvs := r.Responses[i].GetResponseRange().GetKvs()
				switch {
				case len(kvs) == 0 || kvs[0].CreateRevision != int64(p.Order):
					c = places.Ended
				case kvs[0].ModRevision != int64(p.Version):
					c = places.Updated
				}
			}
			changes = append(changes, c)
		}
	}
	return changes, nil
}

// Update implements places.Service. A key keeps its create revision, so its position and its token.
func (s *service) Update(ctx context.Context, all []places.Place) (done bool, err error) {
	var same []clientv3.Cmp
	var puts []clientv3.Op
	for _, p := range all {
		same = append(same, clientv3.Compare(clientv3.ModRevision(p.ID), "=", int64(p.Version)))
		puts = append(puts, clientv3.OpPut(p.ID, valueOf(&p), clientv3.WithIgnoreLease()))
	}
	r, err := s.batches.Do(clientv3.WithRequireLeader(undated{ctx}), txn{folder: folderOf(all[0].ID), conds: same, then: puts})
	if err != nil {
		return false, s.writeError(ctx, err)
	}
	for i := range all {
		if r.succeeded {
			all[i].Version = uint64(r.revision)
		}
	}
	return r.succeeded, nil
}

// Close implements places.Service. It revokes the leases of sessions that have ended. A client that was given to New
// stays open.
func (s *service) Close(ctx context.Context) error {
	s.mu.Lock()
	left := slices.Collect(maps.Values(s.sessions))
	s.mu.Unlock()
	errs := make([]error, len(left))
	var all sync.WaitGroup
	for i, ss := range left {
		all.Go(func() { errs[i] = ss.Close(ctx) })
	}
	all.Wait()
	if s.ownsClient {
		_ = s.client.Close() // returns the end of its own context
	}
	return errors.Join(errs...)
}

// retry calls f until it returns nil or ctx ends. limit bounds each call. The pause
// between calls grows from 50 ms to 1 s.
func retry(ctx context.Context, limit time.Duration, f func(context.Context) error) {
	for wait := minPause; ; wait = min(2*wait, time.Second) {
		limited, cancel := context.WithTimeout(clientv3.WithRequireLeader(ctx), limit)
		err := f(limited)
		cancel()
		if err == nil || !call.Sleep(ctx, wait) {
			return
		}
	}
}

// memory is a bounded set of folders.
type memory struct {
	mu  sync.Mutex
	all map[string]struct{}
}

const maxRemembered = 4096

func (m *memory) has(folder string) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	_, ok := m.all[folder]
	return ok
}

func (m *memory) set(folder string, in bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	switch {
	case !in:
		delete(m.all, folder)
	case m.all == nil || len(m.all) >= maxRemembered: // to forget costs one request for each
		m.all = map[string]struct{}{folder: {}}
	default:
		m.all[folder] = struct{}{}
	}
}
