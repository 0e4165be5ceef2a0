package faults

import (
	"context"
	"fmt"
	"math/rand/v2"
	"syscall"
	"time"

	"github.com/interlock-go/lock/integration/provision"
)

// Fault is one kind of fault.
type Fault struct {
	Name string
	// Strike begins the fault once, waits and ends it. Nil: nothing happens.
	Strike func(ctx context.Context, s *Strike) error
	// Processes is how many clients run in processes of their own.
	Processes int
	// Crowd is set if they are readers, writers and users of permits: see crowd.
	Crowd bool
	// Clock is the error of their wall clocks, in either direction.
	Clock time.Duration
	// Named is set if sessions connect to the service by name.
	Named bool
	// Least and Most bound its length; zero: 50 ms and 1.5 TTLs.
	Least, Most time.Duration
	// Known are the rules that the service violates under this fault whatever its driver
	// does. A violation is reported and counted, and fails no test.
	Known []Rule
}

// Strike is one occurrence of a fault.
type Strike struct {
	*run
	R *rand.Rand
	N int // how many there were before

	least, most time.Duration
}

// Length returns a random length of a fault: mostly a part of a TTL, sometimes more.
func (s *Strike) Length() time.Duration {
	x, most := s.R.Float64(), s.ttl*3/2
	if s.most != 0 {
		most = min(most, s.most)
	}
	return max(s.least, 50*time.Millisecond+time.Duration(x*x*x*float64(most)))
}

// Last waits for d, or until ctx ends.
func (s *Strike) Last(ctx context.Context, d time.Duration) {
	select {
	case <-time.After(d):
	case <-ctx.Done():
	}
}

// links is a fault of the network between some of the sessions and the service.
func links(name string, do func(*Strike, *provision.Proxy)) Fault {
	return Fault{Name: name, Strike: func(ctx context.Context, s *Strike) error {
		struck := s.R.Perm(len(s.sessions))[:1+s.R.IntN(len(s.sessions))]
		d := s.Length()
		s.Logf("%s of sessions %v for %v", name, struck, d)
		for _, i := range struck {
			s.sessions[i].each(func(p *provision.Proxy) { do(s, p) })
		}
		s.Last(ctx, d)
		for _, i := range struck {
			if err := s.sessions[i].heal(); err != nil {
				return err
			}
		}
		return nil
	}}
}

// Stalled is a network that delays all bytes until the end of the fault.
func Stalled() Fault {
	return links("no bandwidth", func(_ *Strike, p *provision.Proxy) { p.Stall() })
}

// Slow is a network that delays all bytes by d, and by up to more besides.
func Slow(d, more time.Duration) Fault {
	return links("slow", func(_ *Strike, p *provision.Proxy) { p.Jitter(d, more) })
}

// operations whose replies are lost in turn.
var operations = []string{"lock", "try", "extend", "unlock"}

// Network returns the faults of networks.
func Network() []Fault {
	return []Fault{
		{Name: "reply lost", Strike: loseReplies},
		links("reset", func(_ *Strike, p *provision.Proxy) { p.ResetPeer() }),
		links("cut", func(_ *Strike, p *provision.Proxy) { p.Cut() }),
		links("blackhole", func(_ *Strike, p *provision.Proxy) { p.Blackhole() }),
		links("blackhole of replies", func(_ *Strike, p *provision.Proxy) { p.BlackholeReplies() }),
		links("blackhole of requests", func(_ *Strike, p *provision.Proxy) { p.BlackholeRequests() }),
		links("delay and jitter", func(s *Strike, p *provision.Proxy) { p.Jitter(s.ttl/100, s.ttl/5) }),
		Stalled(),
		{Name: "address changed", Named: true, Strike: move},
	}
}

// move changes the address of the service for some of the sessions, which connect by name. The old address may stop
// answering before, as when a machine dies and another gets its name.
func move(ctx context.Context, s *Strike) error {
	struck := s.R.Perm(len(s.sessions))[:1+s.R.IntN(len(s.sessions))]
	silent := s.R.IntN(2) == 0
	d := s.Length()
	s.Logf("sessions %v have the service at another address; silence before for %v: %v", struck, d, silent)
	if silent {
		for _, i := range struck {
			s.sessions[i].each((*provision.Proxy).Blackhole)
		}
		s.Last(ctx, d)
	}
	for _, i := range struck {
		for _, p := range s.sessions[i].proxies {
			if err := p.Move(); err != nil {
				return err
			}
		}
	}
	return nil
}

// loseReplies cuts the links of sessions that begin an operation of one kind, in place of
// the first, second or third reply: the request was executed.
func loseReplies(ctx context.Context, s *Strike) error {
	what, n := operations[s.N%len(operations)], s.N/len(operations)%3
	s.Logf("reply %d lost of %s", n+1, what)
	s.losing.Store(&losing{what, n})
	s.Last(ctx, s.ttl/8)
	s.losing.Store(nil)
	for _, c := range s.sessions {
		if err := c.heal(); err != nil {
			return err
		}
	}
	return nil
}

type losing struct {
	what string
	n    int
}

// Servers returns the faults of one server.
func Servers(server *provision.Server) []Fault {
	return []Fault{Frozen("server frozen", one(server)), Killed("server killed", one(server))}
}

func one(server *provision.Server) func(context.Context) (*provision.Server, error) {
	return func(context.Context) (*provision.Server, error) { return server, nil }
}

// Frozen stops a server, with connections open.
func Frozen(name string, which func(context.Context) (*provision.Server, error)) Fault {
	return Fault{Name: name, Strike: func(ctx context.Context, s *Strike) error {
		server, err := which(ctx)
		if err != nil {
			return err
		}
		d := s.Length()
		s.Logf("%s (%s) for %v", name, server.Addr(), d)
		if err := server.Pause(); err != nil {
			return err
		}
		s.Last(ctx, d)
		return server.Resume()
	}}
}

// Killed ends a server with SIGKILL and starts it again on its files.
func Killed(name string, which func(context.Context) (*provision.Server, error)) Fault {
	return Fault{Name: name, Strike: func(ctx context.Context, s *Strike) error {
		server, err := which(ctx)
		if err != nil {
			return err
		}
		d := s.Length() / 2
		s.Logf("%s (%s) for %v", name, server.Addr(), d)
		if err := server.Kill(); err != nil {
			return err
		}
		s.Last(ctx, d)
		again, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Minute)
		defer cancel()
		return server.Restart(again)
	}}
}

// Processes returns the faults of clients' processes.
func Processes() []Fault {
	return []Fault{
		{Name: "holder frozen", Processes: 2, Strike: func(ctx context.Context, s *Strike) error {
			p, d := s.process(), s.ttl+s.Length()
			s.Logf("process %d frozen for %v", p.cmd.Process.Pid, d)
			if err := p.cmd.Process.Signal(syscall.SIGSTOP); err != nil {
				return err
			}
			s.Last(ctx, d)
			return p.cmd.Process.Signal(syscall.SIGCONT)
		}},
		{Name: "holder killed", Processes: 2, Strike: func(ctx context.Context, s *Strike) error {
			s.Last(ctx, s.Length())
			return s.replace(s.R.IntN(len(s.processes)))
		}},
		{Name: "client clock wrong", Processes: 2, Clock: time.Hour},
		{Name: "crowd killed", Processes: 10, Crowd: true, Strike: func(ctx context.Context, s *Strike) error {
			s.Last(ctx, s.ttl+s.Length())
			return s.replace(s.R.IntN(len(s.processes)))
		}},
	}
}

// Mixed is a random sequence of the given faults, except those with Known rules and those of a
// crowd.
func Mixed(all []Fault) Fault {
	m := Fault{Name: "mixed"}
	var some []Fault
	for _, f := range all {
		if f.Strike != nil && len(f.Known) == 0 && !f.Crowd {
			some = append(some, f)
			m.Processes, m.Named = max(m.Processes, f.Processes), m.Named || f.Named
		}
	}
	m.Strike = func(ctx context.Context, s *Strike) error {
		f := some[s.R.IntN(len(some))]
		s.least, s.most = f.Least, f.Most
		if err := f.Strike(ctx, s); err != nil {
			return fmt.Errorf("%s: %w", f.Name, err)
		}
		return nil
	}
	return m
}

// All returns all faults of the service, none first and mixed last.
func (s *Service) All() []Fault {
	all := []Fault{{Name: "none"}}
	if len(s.Upstreams) > 0 {
		all = append(all, Network()...)
	}
	if s.Server != nil {
		all = append(all, Servers(s.Server)...)
	}
	all = append(all, s.Faults...)
	if s.Command != nil {
		all = append(all, Processes()...)
	}
	return append(all, Mixed(all))
}
