package provision

import (
	"bufio"
	"context"
	"fmt"
	"net"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
)

// EtcdNodes is a cluster of etcd of local processes.
type EtcdNodes struct {
	Nodes []*Server
	t     testing.TB
	peers []*peerPort
	ids   []string // of the members, as they call themselves among each other
}

// EtcdCluster starts so many nodes of the flavour, from the image that Docker has of it or from a local binary, and
// returns when all of them serve. It ends with the test.
func EtcdCluster(t testing.TB, flavour string, nodes int) *EtcdNodes {
	t.Helper()
	LeaveOut(t, "etcd clusters")
	c := &EtcdNodes{t: t}
	var initial []string
	listen := ports(t, nodes)
	for i := range nodes {
		p, err := newPeerPort(listen[i].addr())
		if err != nil {
			t.Fatalf("provision: etcd cluster: %v", err)
		}
		t.Cleanup(p.close)
		c.peers = append(c.peers, p)
		initial = append(initial, fmt.Sprintf("n%d=http://%s", i, p.addr()))
	}
	c.Nodes = startTogether(t, etcdKinds[flavour], nodes, func(i int) Options {
		return Options{Args: []string{
			"--name", fmt.Sprintf("n%d", i), "--initial-cluster", strings.Join(initial, ","),
			"--listen-peer-urls", "http://" + listen[i].addr(), "--initial-advertise-peer-urls", "http://" + c.peers[i].addr(),
		}}
	})
	ctx, cancel := context.WithTimeout(t.Context(), startTimeout)
	defer cancel()
	if err := c.identify(ctx); err != nil {
		t.Fatalf("provision: etcd cluster: %v", err)
	}
	return c
}

// Addrs returns the host:port of every node.
func (c *EtcdNodes) Addrs() []string { return addrs(c.Nodes) }

// URL returns what a client of all nodes opens.
func (c *EtcdNodes) URL() string { return "etcd://" + strings.Join(c.Addrs(), ",") }

// identify learns by which name the members know each other.
func (c *EtcdNodes) identify(ctx context.Context) error {
	for _, s := range c.Nodes {
		var id string
		err := s.etcd(ctx, func(ctx context.Context, e *clientv3.Client) error {
			r, err := e.Status(ctx, "http://"+s.addr)
			if err == nil {
				id = strconv.FormatUint(r.Header.MemberId, 16)
			}
			return err
		})
		if err != nil {
			return err
		}
		c.ids = append(c.ids, id)
	}
	return nil
}

// Leader returns the node that leads, as a majority of the nodes that answer sees it.
func (c *EtcdNodes) Leader(ctx context.Context) (int, error) {
	leader := -1
	err := until(ctx, func(ctx context.Context) error {
		votes := make([]int, len(c.Nodes))
		for _, s := range c.Nodes {
			_ = s.etcd(ctx, func(ctx context.Context, e *clientv3.Client) error {
				r, err := e.Status(ctx, "http://"+s.addr)
				for j, id := range c.ids {
					if err == nil && id == strconv.FormatUint(r.Leader, 16) {
						votes[j]++
					}
				}
				return err
			})
		}
		for j, n := range votes {
			if n > len(c.Nodes)/2 {
				leader = j
				return nil
			}
		}
		return fmt.Errorf("no leader: votes %v", votes)
	})
	return leader, err
}

// Isolate cuts a node off the others; its clients still reach it.
func (c *EtcdNodes) Isolate(node int) {
	for i, p := range c.peers {
		p.block(c.ids[node], i == node)
	}
}

// Rejoin ends Isolate.
func (c *EtcdNodes) Rejoin() {
	for _, p := range c.peers {
		p.block("", false)
	}
}

// etcd runs requests to this server, for at most two seconds.
func (s *Server) etcd(ctx context.Context, requests func(context.Context, *clientv3.Client) error) error {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	e, err := clientv3.New(clientv3.Config{Endpoints: []string{"http://" + s.addr}, DialTimeout: time.Second, Logger: zap.NewNop()})
	if err != nil {
		return err
	}
	defer e.Close()
	return requests(ctx, e)
}

// peerPort is a proxy before the port on which a node listens to its peers. Each request of a node contains its id, so
// peerPort knows which node a connection belongs to.
type peerPort struct {
	port     *reservedPort
	listener net.Listener
	upstream string
	wg       sync.WaitGroup

	mu      sync.Mutex
	blocked string // a member
	all     bool
	open    map[net.Conn]string // by whom
}

func newPeerPort(upstream string) (*peerPort, error) {
	port, err := reservePort()
	if err != nil {
		return nil, err
	}
	l, err := net.Listen("tcp", port.addr())
	if err != nil {
		port.release()
		return nil, err
	}
	p := &peerPort{port: port, listener: l, upstream: upstream, open: map[net.Conn]string{}}
	p.wg.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			p.wg.Go(func() { p.serve(c) })
		}
	})
	return p, nil
}

func (p *peerPort) addr() string { return p.port.addr() }

func (p *peerPort) block(member string, all bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.blocked, p.all = member, all
	for c, from := range p.open {
		if p.refusesLocked(from) {
			_ = c.Close()
		}
	}
}

func (p *peerPort) refusesLocked(from string) bool {
	return p.all || p.blocked != "" && (from == p.blocked || from == "")
}

var fromMember = regexp.MustCompile(`(?i)\r\nX-Server-From: *([0-9a-f]+)`)

func (p *peerPort) serve(c net.Conn) {
	defer c.Close()
	r := bufio.NewReaderSize(c, 64<<10)
	_, _ = r.Peek(1)
	first, _ := r.Peek(r.Buffered()) // the head of a request comes in one piece
	from := ""
	if m := fromMember.FindSubmatch(first); m != nil {
		from = string(m[1])
	}
	p.mu.Lock()
	refused := p.refusesLocked(from)
	if !refused {
		p.open[c] = from
	}
	p.mu.Unlock()
	if refused {
		return
	}
	defer func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		delete(p.open, c)
	}()
	up, err := net.Dial("tcp", p.upstream)
	if err != nil {
		return
	}
	defer up.Close()
	var both sync.WaitGroup
	both.Go(func() { _, _ = r.WriteTo(up); _ = up.Close() })
	both.Go(func() { _, _ = bufio.NewReader(up).WriteTo(c); _ = c.Close() })
	both.Wait()
}

func (p *peerPort) close() {
	_ = p.listener.Close()
	p.mu.Lock()
	p.all = true
	for c := range p.open {
		_ = c.Close()
	}
	p.mu.Unlock()
	p.wg.Wait()
	p.port.release()
}
