package etcdlock

import (
	"context"
	"sync"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"
)

// keepAlive sends keep-alives until the session has ended. If there is no answer it sends another one by turns on a
// second stream, which asks the next server of the client: a server that is cut off may accept requests and not answer.
// An answer may also take long on its way: etcd's gRPC proxy answers when its own next keep-alive was answered. So no
// answer is given up, and a request of another kind finds out whether the connection is dead.
func (ss *session) keepAlive() {
	silence := ss.ttl / 12
	if ss.s.client.Username != "" {
		silence *= 2 // a second stream costs an authentication
	}
	next := time.NewTimer(ss.ttl / 8)
	defer next.Stop()
	for silent := 0; ; {
		wait := ss.ttl / 8
		if silent > 0 {
			wait = 0
		}
		next.Reset(wait)
		select {
		case <-next.C:
		case <-ss.kick:
		case <-ss.done:
			return
		case <-ss.s.life.Context().Done():
			return
		}
		ss.mu.Lock()
		news := ss.news
		ss.mu.Unlock()
		ss.s.keeper.send(ss, silent%2)
		next.Reset(silence)
		select {
		case <-news:
			silent = 0
		case <-next.C:
			if silent++; silent == 2 {
				ss.s.life.Go(ss.probe)
			}
		case <-ss.done:
			return
		}
	}
}

// probe makes a request, of which connections notice whether they are dead.
func (ss *session) probe() {
	ctx, cancel := context.WithTimeout(ss.s.life.Context(), ss.ttl/4)
	defer cancel()
	if r, err := ss.s.client.TimeToLive(ctx, ss.id); err == nil && r.TTL < 0 {
		ss.end(ss.gone(), true)
	}
}

// keeper has the streams of keep-alives. The servers authenticate the user of each new stream, which costs them a hash
// of the password and a proposal, so it keeps one stream until that fails.
type keeper struct {
	s *service

	mu      sync.Mutex      // guards the fields below
	streams [2]*leaseStream // the second is tried when the first is silent
	opening [2]bool
}

// leaseStream is a stream of keep-alives of any leases.
type leaseStream struct {
	stream etcdserverpb.Lease_LeaseKeepAliveClient
	cancel context.CancelFunc

	mu      sync.Mutex // guards waiting, and stream.Send
	waiting map[clientv3.LeaseID][]sent
}

// sent is a request without an answer.
type sent struct {
	session *session
	at      time.Time
}

// send sends a keep-alive on one of the streams, and opens that if there is none.
func (k *keeper) send(ss *session, which int) {
	k.mu.Lock()
	st, opening := k.streams[which], k.opening[which]
	k.opening[which] = opening || st == nil
	k.mu.Unlock()
	switch {
	case st != nil:
		st.send(ss)
	case !opening:
		if !k.s.life.Go(func() { k.open(ss, which) }) {
			return
		}
	}
}

// open opens a stream, sends a keep-alive of the session that asked for it, and receives answers until the stream fails.
// A slow opening goes on, for the next request: to authenticate again would make a busy server slower.
func (k *keeper) open(ss *session, which int) {
	ctx, cancel := context.WithCancel(clientv3.WithRequireLeader(k.s.life.Context()))
	defer cancel()
	slow := time.AfterFunc(k.s.opt.openTimeout, cancel)
	stream, err := etcdserverpb.NewLeaseClient(k.s.client.ActiveConnection()).LeaseKeepAlive(ctx, grpc.WaitForReady(true))
	slow.Stop()
	st := &leaseStream{stream: stream, cancel: cancel, waiting: map[clientv3.LeaseID][]sent{}}
	k.mu.Lock()
	k.opening[which] = false
	if err == nil {
		k.streams[which] = st
	}
	k.mu.Unlock()
	if err != nil {
		return
	}
	st.send(ss)
	k.receive(st)
}

func (st *leaseStream) send(ss *session) {
	st.mu.Lock()
	defer st.mu.Unlock()
	st.waiting[ss.id] = append(st.waiting[ss.id], sent{ss, time.Now()})
	_ = st.stream.Send(&etcdserverpb.LeaseKeepAliveRequest{ID: int64(ss.id)}) // receive gets the error
}

// receive passes the answers on, until the stream fails. The answers of a lease are in the order of its requests: a late
// answer must not be taken for that of a later request.
func (k *keeper) receive(st *leaseStream) {
	for {
		r, err := st.stream.Recv()
		if err != nil {
			k.drop(st)
			return
		}
		st.mu.Lock()
		id := clientv3.LeaseID(r.ID)
		w := st.waiting[id]
		if len(w) > 1 {
			st.waiting[id] = w[1:]
		} else {
			delete(st.waiting, id)
		}
		st.mu.Unlock()
		if len(w) > 0 {
			k.keep(st)
			w[0].session.answered(w[0].at, r.TTL)
		}
	}
}

// keep makes a stream that answers the only one.
func (k *keeper) keep(st *leaseStream) {
	k.mu.Lock()
	other := k.streams[0]
	if st == other {
		other = k.streams[1]
	}
	k.streams = [2]*leaseStream{st}
	k.mu.Unlock()
	if other != nil {
		other.cancel()
	}
}

func (k *keeper) drop(st *leaseStream) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for i := range k.streams {
		if k.streams[i] == st {
			k.streams[i] = nil
		}
	}
}
