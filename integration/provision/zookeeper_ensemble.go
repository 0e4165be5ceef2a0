package provision

import (
	"context"
	"errors"
	"fmt"
	"os"
	"testing"
	"time"
)

// Ensemble is a ZooKeeper ensemble of local processes.
type Ensemble struct {
	Nodes []*Server
	// links[i][j] are where server i calls server j: for the quorum and for elections. Only of servers that are apart.
	links [][][]*Proxy
}

// Addrs returns the host:port of every server, for clients.
func (e *Ensemble) Addrs() []string { return addrs(e.Nodes) }

// ZooKeeperEnsemble starts so many servers of the flavour, from the image that Docker has of it or from the installed
// version if that is the one, and returns when they have a leader. It ends with the test.
func ZooKeeperEnsemble(t testing.TB, flavour string, size int, config ...string) *Ensemble {
	t.Helper()
	return zookeeperEnsemble(t, flavour, size, false, config)
}

// ZooKeeperEnsembleApart is an ensemble of the installed version whose servers talk to each other through proxies, so
// that CutOff and Blackhole work. It is slower to replace a leader that was killed: a proxy accepts what a dead server
// would refuse.
func ZooKeeperEnsembleApart(t testing.TB, size int, config ...string) *Ensemble {
	t.Helper()
	return zookeeperEnsemble(t, ZooKeeper38, size, true, config)
}

func zookeeperEnsemble(t testing.TB, flavour string, size int, apart bool, config []string) *Ensemble {
	t.Helper()
	LeaveOut(t, "ZooKeeper ensembles")
	k := zookeeperKinds[flavour]
	member, source, err := zookeeperMembers(t.Context(), k)
	if err != nil {
		unavailable(t, k, err)
	}
	e := &Ensemble{links: make([][][]*Proxy, size)}
	clients, quorum, election := ports(t, size), ports(t, size), ports(t, size)
	dirs := make([]string, size)
	for j := range size {
		e.links[j] = make([][]*Proxy, size)
		for i := range j {
			if !apart {
				continue
			}
			down := NewProxy(t, election[i].addr())
			up := NewProxy(t, newCallback(t, election[j].addr(), down.Addr()))
			e.links[j][i] = []*Proxy{NewProxy(t, quorum[i].addr()), down}
			e.links[i][j] = []*Proxy{NewProxy(t, quorum[j].addr()), up}
		}
	}
	for i := range size {
		lines := config
		for j := range size {
			q, el := quorum[j].port, election[j].port
			if l := e.links[i][j]; l != nil {
				q, el = l[0].port, l[1].port
			}
			lines = append(lines[:len(lines):len(lines)], fmt.Sprintf("server.%d=127.0.0.1:%d:%d:participant;127.0.0.1:%d", j+1, q, el, clients[j].port))
		}
		if dirs[i], err = os.MkdirTemp("", "interlock-zookeeper-"); err == nil {
			err = os.WriteFile(dirs[i]+"/myid", fmt.Appendf(nil, "%d\n", i+1), 0o600)
		}
		var p instance
		if err == nil {
			p, err = member(dirs[i], clients[i], lines)
		}
		if err != nil {
			t.Fatalf("provision: ensemble: %v", err)
		}
		s := &Server{Flavour: flavour, Source: source, kind: k, addr: clients[i].addr(), in: p, port: clients[i], dir: dirs[i]}
		register(s)
		e.Nodes = append(e.Nodes, s)
		s.endWith(t)
		if err := p.start(t.Context()); err != nil {
			t.Fatalf("provision: ensemble: %v", err)
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), startTimeout)
	defer cancel()
	if err := e.WaitReady(ctx); err != nil {
		t.Fatal(err)
	}
	if err := e.throughProxies(ctx); err != nil {
		t.Fatalf("provision: ensemble: %v", err)
	}
	if v := e.Nodes[0].Version; !k.serves(v) {
		unavailable(t, k, fmt.Errorf("%s is version %s, want %s", source, v, k.major))
	}
	record(flavour, e.Nodes[0].Version, fmt.Sprintf("%d of %s", size, e.Nodes[0].Source))
	return e
}

// zookeeperMembers returns what makes a server of an ensemble, from the lines of its configuration.
func zookeeperMembers(ctx context.Context, k kind) (member func(dir string, port *reservedPort, lines []string) (instance, error), source string, err error) {
	java, classPath, missing := findZooKeeper()
	if k.built != "" {
		docker, image, err := presentImage(ctx, k)
		if err == nil {
			return func(dir string, port *reservedPort, lines []string) (instance, error) {
				p, err := zookeeperProcess(java, classPath, dir, port, lines) // writes the configuration
				if err != nil {
					return nil, err
				}
				file := p.args[len(p.args)-1]
				return &container{
					docker: docker, image: image, port: port, inside: port.port, host: true,
					files: []string{file, dir + "/myid"}, cmd: []string{"zkServer.sh", "start-foreground", file},
				}, nil
			}, "container " + image, nil
		}
		missing = errors.Join(err, missing)
	}
	return func(dir string, port *reservedPort, lines []string) (instance, error) {
		return zookeeperProcess(java, classPath, dir, port, lines)
	}, "binary " + classPath, missing
}

// throughProxies returns when every pair of servers that are apart holds its elections over a proxy: one that did so
// beside it could not be cut off, and would be elected again and again.
func (e *Ensemble) throughProxies(ctx context.Context) error {
	return until(ctx, func(context.Context) error {
		for j := range e.links {
			for i := range j {
				if l := e.links[j][i]; l != nil && l[1].Connections() == 0 {
					return fmt.Errorf("servers %d and %d do not talk over their proxy", i+1, j+1)
				}
			}
		}
		return nil
	})
}

func ports(t testing.TB, n int) []*reservedPort {
	t.Helper()
	var all []*reservedPort
	for range n {
		p, err := reservePort()
		if err != nil {
			t.Fatalf("provision: %v", err)
		}
		t.Cleanup(p.release)
		all = append(all, p)
	}
	return all
}

// WaitReady returns when every server that runs answers, and so is part of a quorum.
func (e *Ensemble) WaitReady(ctx context.Context) error {
	for _, s := range e.Nodes {
		if s.in.running() {
			if err := s.WaitReady(ctx); err != nil {
				return err
			}
		}
	}
	return nil
}

// Leader returns the index of the server that leads.
func (e *Ensemble) Leader(ctx context.Context) (int, error) {
	leader := -1
	err := until(ctx, func(ctx context.Context) error {
		for i, s := range e.Nodes {
			if answer, err := FourLetters(ctx, s.addr, "srvr"); err == nil && firstMatch(zookeeperMode, answer) == "leader" {
				leader = i
				return nil
			}
		}
		return errors.New("no server says that it leads")
	})
	return leader, err
}

// CutOff severs server i from the others, while its clients still reach it.
func (e *Ensemble) CutOff(i int) {
	e.each(i, func(p *Proxy) error { p.Cut(); return nil })
}

// Blackhole makes all that server i and the others say to each other vanish, with connections open.
func (e *Ensemble) Blackhole(i int) {
	e.each(i, func(p *Proxy) error { p.Blackhole(); return nil })
}

// Lag delays all that server i and the others say to each other, each way.
func (e *Ensemble) Lag(i int, d time.Duration) {
	e.each(i, func(p *Proxy) error { p.Delay(d); return nil })
}

// Rejoin undoes CutOff, Blackhole and Lag.
func (e *Ensemble) Rejoin(i int) error {
	var errs []error
	e.each(i, func(p *Proxy) error {
		errs = append(errs, p.Heal())
		return nil
	})
	return errors.Join(errs...)
}

func (e *Ensemble) each(i int, do func(*Proxy) error) {
	for j := range e.Nodes {
		if i == j {
			continue
		}
		for _, p := range append(e.links[i][j], e.links[j][i]...) {
			_ = do(p)
		}
	}
}
