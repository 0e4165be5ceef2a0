package zklock

import (
	"context"
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/interlock-go/lock/backend"
	"github.com/interlock-go/lock/backend/places"
)

const (
	maxHeld       = 4096
	maxLost       = 2 // connections that a Put may lose
	maxReplaced   = 5 // lock nodes that vanish meanwhile
	leastPatience = 250 * time.Millisecond
)

// put is a request for a place.
type put struct {
	places.Put
	s   *service
	ss  *session
	e   *entry
	dir string
}

// Put implements places.Service. It takes one round trip if the lock is free and was used before. A share that fits
// beside others, or waits, has to read them. A Try enters the queue too, so that it overtakes no waiter, and leaves it if it
// does not hold. If the key was held the last time it reads the queue first.
func (s *service) Put(ctx context.Context, req places.Put) (places.Answer, error) {
	p := &put{Put: req, s: s, ss: req.Session.(*session), dir: s.lockNode(req.Key)}
	e, err := s.enter(ctx, p.ss, p.dir, req.Owner)
	if err != nil {
		return places.Answer{}, p.failed(err)
	}
	p.e = e
	defer e.unlock()
	a, err := p.once(ctx)
	for lost := 0; lost < maxLost && (connectionLost(err) || errors.Is(err, errDeleted)) && ctx.Err() == nil; lost++ {
		a, err = p.once(ctx)
	}
	if e.nothingRemains() {
		s.leave(e)
	}
	a.Unanswered = e.unknown
	return a, p.failed(err)
}

// failed returns an error that says whether something may remain of the attempt.
func (p *put) failed(err error) error {
	switch {
	case err == nil:
		return nil
	case sessionEnded(err):
		return fmt.Errorf("%w: %w", places.ErrEnded, err)
	case p.e == nil || p.e.nothingRemains():
		return backend.NotExecuted(err)
	}
	return backend.Uncertain(err)
}

var errDeleted = errors.New("zookeeper: the node of the attempt was deleted")

// once makes one attempt, on one connection.
func (p *put) once(ctx context.Context) (a places.Answer, err error) {
	within, cancel := withLimit(ctx, min(max(p.TTL/3, leastPatience), p.s.opt.openTimeout))
	defer cancel()
	if err := p.ss.awaitConnection(within); err != nil {
		return a, err
	}
	if p.e.unknown {
		if err := p.e.resolve(ctx); err != nil {
			return a, err
		}
	}
	alone := false
	if p.e.path == "" {
		if p.Mode == places.Try && p.s.wasHeld(p.dir) {
			if q, err := p.checkFree(ctx); err != nil || len(q.Places) > 0 && !q.Fits(p.Share) {
				return places.Answer{Queue: q}, err
			}
		}
		var used *usedUpError
		for alone, err = p.create(ctx); errors.As(err, &used); alone, err = p.create(ctx) {
			if p.Mode == places.Try {
				return places.Answer{Queue: used.queue}, nil
			}
			if err := p.ss.awaitEmptyQueue(ctx, p.dir, used.queue); err != nil {
				return a, fmt.Errorf("%w: %w", used, err)
			}
		}
		if err != nil {
			return a, err
		}
	}
	own := p.e.place(&p.Request)
	switch {
	case alone: // nothing is beside it: so every client gives it the first slots
		own.Slots = p.Share.FreeSlots(nil)
		p.s.setHeld(p.dir, false)
		return places.Answer{Place: &own, Holds: true}, nil
	case p.Mode == places.Follow:
		return places.Answer{Place: &own}, nil
	}
	return p.stand(ctx)
}

// stand finds out whether a place that was put holds. It records the slots of permits that hold.
func (p *put) stand(ctx context.Context) (a places.Answer, err error) {
	for {
		q, err := p.ss.queue(ctx, p.dir, p.e.order, reading{})
		if err != nil {
			return a, err
		}
		i := q.Index(p.e.path)
		if i < 0 {
			p.e.clear()
			return a, errDeleted
		}
		p.e.token = max(p.e.token, q.Places[i].Token)
		own := p.e.place(&p.Request)
		own.Version, own.Slots = q.Places[i].Version, q.Places[i].Slots
		q.Places[i] = own
		holds := i < q.Holders()
		if holds && p.Share.Capacity > 0 && len(own.Slots) == 0 {
			if _, err := p.s.Update(ctx, q.Unrecorded(maxOps)); err != nil {
				return a, err
			}
			continue // if the nodes were not as they were read, others have recorded slots
		}
		p.s.setHeld(p.dir, !holds)
		if !holds && p.Mode == places.Try {
			return p.withdraw(ctx, q)
		}
		return places.Answer{Place: &own, Holds: holds, Queue: q}, nil
	}
}

// withdraw leaves the queue. It reads the holder at the same time.
func (p *put) withdraw(ctx context.Context, q places.Queue) (places.Answer, error) {
	read := make(chan struct{})
	go func() {
		defer close(read)
		p.ss.readFirst(ctx, &q)
	}()
	err := p.ss.deleteIfExists(ctx, p.e.path)
	<-read
	if err == nil {
		p.e.clear()
	}
	return places.Answer{Queue: q}, err
}

// readFirst reads the first place, for those who want to know the holder.
func (ss *session) readFirst(ctx context.Context, q *places.Queue) {
	first := &q.Places[0]
	if n, err := ss.get(ctx, first.ID); first.Token == 0 && err == nil && n.stat != nil {
		c, _ := parseChild(path.Base(first.ID))
		fill(first, c.kind, n.data)
		first.Token = uint64(n.stat.Czxid)
	}
}

// checkFree returns the queue, with what is known of the holder.
func (p *put) checkFree(ctx context.Context) (places.Queue, error) {
	if err := p.ss.sync(ctx); err != nil { // the server may not know yet of a release
		return places.Queue{}, err
	}
	return p.ss.queue(ctx, p.dir, places.All, reading{first: true})
}

// create creates the node of the attempt at the end of the queue. alone: the lock's node has no other child. It takes one
// round trip if the lock's node exists. The error is a *usedUpError if the attempt must wait for the end of the queue.
func (p *put) create(ctx context.Context) (alone bool, err error) {
	k, e := kindOf(p.Share), p.e
	data := dataOf(&places.Place{Contender: backend.Contender{Metadata: p.Metadata, Share: p.Share}}, k)
	create := func(c *zk.Conn) ([]zk.MultiResponse, error) {
		return c.Multi(
			&zk.CreateRequest{Path: p.dir + "/" + p.Owner + "-" + k.zeros(), Data: data, Acl: p.s.opt.acl, Flags: zk.FlagEphemeralSequential},
			// changes nothing, and returns the state of the lock's node after the creation
			&zk.SetDataRequest{Path: p.dir, Version: -1},
		)
	}
	for range maxReplaced {
		r, pending, err := ask(ctx, p.ss, create)
		if errors.Is(err, zk.ErrNoNode) { // first use of the key, or the server has deleted the empty container
			err := p.ss.createNode(ctx, p.dir)
			e.mayBeEmpty = err == nil || !answered(err)
			if err != nil {
				return false, err
			}
			continue
		}
		if err == nil && (len(r) != 2 || r[1].Stat == nil || !strings.HasPrefix(r[0].String, p.dir+"/")) {
			err = fmt.Errorf("zookeeper: unexpected reply to a multi: %+v", r)
		}
		e.mayBeEmpty = e.mayBeEmpty && err != nil
		if err != nil {
			if !answered(err) && !errors.As(err, &notSent{}) {
				e.unknown, e.pending = true, pending
			}
			return false, explain(err, p.dir)
		}
		c, ok := parseChild(path.Base(r[0].String))
		if !ok || !c.inOrder() {
			if err := e.replaceLockNode(ctx, r[0].String); err != nil {
				return false, err
			}
			continue
		}
		e.set(r[0].String, uint64(r[1].Stat.Czxid)+uint64(c.seq), uint64(r[1].Stat.Mzxid))
		return r[1].Stat.NumChildren == 1, nil
	}
	return false, fmt.Errorf("zookeeper: node %.200q is deleted again and again", p.dir)
}

// wasHeld reports whether a lock was held when a Try last looked.
func (s *service) wasHeld(dir string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	_, held := s.held[dir]
	return held
}

func (s *service) setHeld(dir string, held bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.held) >= maxHeld {
		clear(s.held) // costs one write for each key that is tried again
	}
	if delete(s.held, dir); held {
		s.held[dir] = struct{}{}
	}
}

// entryID is an attempt in a session.
type entryID struct {
	ss    *session
	owner string
}

// entry is an attempt that may have a node in a session, or in whose name a request to create one is under way. Its
// fields belong to the owner of busy; path is also guarded by service.mu.
type entry struct {
	entryID
	dir  string
	busy chan struct{} // capacity 1: full while a call works on the attempt

	path         string // "" if there is none or it is not known
	order, token uint64
	// unknown: a request to create was not answered, so there may be a node that path does not name. pending, if not
	// nil, is closed when the library can no longer send that request.
	unknown bool
	pending <-chan struct{}
	// mayBeEmpty: the attempt created the lock's node, or may have, and no node below it. The server would keep that for
	// ever: it deletes containers that have lost their last child.
	mayBeEmpty bool
}

// enter returns the entry of an attempt, a new one if there is none. The caller unlocks it.
func (s *service) enter(ctx context.Context, ss *session, dir, owner string) (*entry, error) {
	id := entryID{ss, owner}
	s.mu.Lock()
	if _, open := s.sessions[ss]; !open {
		s.mu.Unlock()
		return nil, ss.endErr()
	}
	e := s.entries[id]
	if e == nil {
		e = &entry{entryID: id, dir: dir, busy: make(chan struct{}, 1)}
		s.entries[id] = e
	}
	s.mu.Unlock()
	return e, e.lock(ctx)
}

// leave forgets an attempt of which nothing remains.
func (s *service) leave(e *entry) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.entries[e.entryID] == e {
		s.leaveLocked(e)
	}
}

func (s *service) leaveLocked(e *entry) {
	delete(s.entries, e.entryID)
	s.noteUseLocked(e.dir)
}

func (e *entry) lock(ctx context.Context) error {
	select {
	case e.busy <- struct{}{}:
		return nil
	default:
	}
	select {
	case e.busy <- struct{}{}:
		return nil
	case <-ctx.Done():
		return endOf(ctx)
	}
}

func (e *entry) unlock() { <-e.busy }

func (e *entry) nothingRemains() bool { return e.path == "" && !e.unknown && !e.mayBeEmpty }

// set notes the node of the attempt.
func (e *entry) set(path string, order, token uint64) {
	e.ss.s.mu.Lock()
	defer e.ss.s.mu.Unlock()
	e.path, e.order, e.token, e.unknown, e.pending = path, order, token, false, nil
}

// clear notes that the attempt certainly has no node.
func (e *entry) clear() { e.set("", 0, 0) }

// place returns the place of the attempt.
func (e *entry) place(req *backend.Request) places.Place {
	return places.Place{
		Contender: backend.Contender{Owner: req.Owner, Metadata: req.Metadata, Share: req.Share},
		ID:        e.path, Order: e.order, Token: e.token,
	}
}

// resolve finds out whether a request to create that was not answered was executed. It keeps one node, of this session,
// and deletes all others of the attempt.
func (e *entry) resolve(ctx context.Context) error {
	all, err := e.find(ctx)
	if err != nil {
		return err
	}
	own := slices.IndexFunc(all, func(f found) bool { return f.own && f.child.inOrder() })
	for i, f := range all {
		if i != own {
			if err := e.ss.deleteIfExists(ctx, f.path); err != nil {
				return err
			}
		}
	}
	if e.clear(); own >= 0 {
		e.set(all[own].path, all[own].order, all[own].token)
	}
	return nil
}
