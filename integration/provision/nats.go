package provision

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// The flavours of NATS that the tests know.
const (
	NATS2  = "nats-2"
	NATS29 = "nats-2-9"
)

// NATSFlavours returns the flavours that every test against NATS should run with.
func NATSFlavours() []string { return []string{NATS2, NATS29} }

var natsKinds = map[string]kind{
	NATS2: natsKind(kind{
		flavour: NATS2, major: "2.15", official: "nats:2", built: "interlock-test/nats:2.15", binaries: []string{builtBinary("nats-server")},
	}),
	NATS29: natsKind(kind{flavour: NATS29, extra: true, major: "2.9", binaries: []string{"nats-server"}}),
}

func natsKind(k kind) kind {
	k.service = "nats"
	k.port = 4222
	k.args, k.url, k.probe = natsArgs, natsURL, natsProbe
	k.binaryVersion = func(output string) string { return firstMatch(natsBinaryVersion, output) }
	return k
}

var natsBinaryVersion = regexp.MustCompile(`nats-server: v(\S+)`)

// NewNATS starts a server with JetStream for this test alone, which may stop, pause, kill and restart it; its data
// survives that.
func NewNATS(t testing.TB, flavour string, o Options) *Server {
	t.Helper()
	return newPrivate(t, natsKindOf(t, flavour), o)
}

func natsKindOf(t testing.TB, flavour string) kind {
	t.Helper()
	k, ok := natsKinds[flavour]
	if !ok {
		t.Fatalf("provision: flavour %q: want %q or %q", flavour, NATS2, NATS29)
	}
	return k
}

func natsArgs(host string, port int, dir string, o Options) []string {
	var args []string
	if dir == "" { // in a container, whose image may start nothing by itself
		args, dir = []string{"nats-server"}, "/interlock"
	}
	args = append(args, "--addr", host, "--port", strconv.Itoa(port), "--jetstream", "--store_dir", filepath.Join(dir, "data"))
	if o.TLS != nil {
		args = append(args, "--tls", "--tlscert", o.TLS.CertFile, "--tlskey", o.TLS.KeyFile)
	}
	return args
}

func natsURL(addr string, o Options) string {
	u := url.URL{Scheme: "nats", Host: addr}
	if o.TLS != nil {
		u.Scheme = "natss"
	}
	if o.Password != "" {
		u.User = url.UserPassword(o.Username, o.Password)
	}
	return u.String()
}

// natsProbe succeeds when JetStream answers, which in a cluster means that it has a leader.
func natsProbe(ctx context.Context, server string, o Options) (version string, err error) {
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	err = withNATS(server, o, func(conn *nats.Conn, js jetstream.JetStream) error {
		version = conn.ConnectedServerVersion()
		_, err := js.AccountInfo(ctx)
		return err
	})
	return version, err
}

// withNATS runs requests on a connection of their own.
func withNATS(server string, o Options, requests func(*nats.Conn, jetstream.JetStream) error) error {
	u, err := url.Parse(server)
	if err != nil {
		return final{err}
	}
	config := nats.GetDefaultOptions()
	config.Url, config.Timeout, config.AllowReconnect = "nats://"+u.Host, time.Second, false
	config.User, config.Password = o.Username, o.Password
	if o.Creds != "" {
		if err := nats.UserCredentials(o.Creds)(&config); err != nil {
			return final{err}
		}
	}
	config.AsyncErrorCB = func(*nats.Conn, *nats.Subscription, error) {}
	if o.TLS != nil {
		config.Secure, config.TLSConfig = true, o.TLS.Client()
	}
	conn, err := config.Connect()
	if err != nil {
		return err
	}
	defer conn.Close()
	js, err := jetstream.New(conn)
	if err != nil {
		return err
	}
	return requests(conn, js)
}

// NATSNodes is a cluster of NATS servers of local processes.
type NATSNodes struct{ Nodes []*Server }

// NATSCluster starts so many nodes of the flavour, with these options, and returns when JetStream of all of them answers. It ends with the
// test.
func NATSCluster(t testing.TB, flavour string, nodes int, o Options) *NATSNodes {
	t.Helper()
	LeaveOut(t, "NATS clusters")
	routes := ports(t, nodes)
	c := &NATSNodes{startTogether(t, natsKindOf(t, flavour), nodes, func(i int) Options {
		var others []string
		for j, r := range routes {
			if j != i {
				others = append(others, "nats://"+r.addr())
			}
		}
		node := o
		node.Args = append(slices.Clone(o.Args), "--name", fmt.Sprintf("n%d", i), "--cluster_name", "test", "--no_advertise",
			"--cluster", "nats://"+routes[i].addr(), "--routes", strings.Join(others, ","))
		return node
	})}
	ctx, cancel := context.WithTimeout(t.Context(), startTimeout)
	defer cancel()
	err := until(ctx, func(ctx context.Context) error { // the nodes know each other when a stream finds place on all of them
		ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
		defer cancel()
		return withNATS(c.Nodes[0].URL(), o, func(_ *nats.Conn, js jetstream.JetStream) error {
			probe := jetstream.StreamConfig{Name: "provision", Replicas: nodes, Storage: jetstream.MemoryStorage}
			if _, err := js.CreateOrUpdateStream(ctx, probe); err != nil {
				return err
			}
			return js.DeleteStream(ctx, probe.Name)
		})
	})
	if err != nil {
		t.Fatalf("provision: NATS cluster: %v", err)
	}
	return c
}

// Addrs returns the host:port of every node.
func (c *NATSNodes) Addrs() []string { return addrs(c.Nodes) }

// URL returns what a client of all nodes opens, with a bucket on all of them.
func (c *NATSNodes) URL() string {
	return fmt.Sprintf("nats://%s/locks?replicas=%d", strings.Join(c.Addrs(), ","), len(c.Nodes))
}

// Each does something with all nodes at the same time.
func (c *NATSNodes) Each(do func(*Server) error) error {
	errs := make([]error, len(c.Nodes))
	var wg sync.WaitGroup
	for i, s := range c.Nodes {
		wg.Go(func() { errs[i] = do(s) })
	}
	wg.Wait()
	return errors.Join(errs...)
}

// Leader returns the node that leads the stream of a bucket.
func (c *NATSNodes) Leader(ctx context.Context, bucket string) (leader int, err error) {
	err = until(ctx, func(ctx context.Context) error {
		ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
		defer cancel()
		for _, s := range c.Nodes {
			err = withNATS(s.URL(), Options{}, func(_ *nats.Conn, js jetstream.JetStream) error {
				stream, err := js.Stream(ctx, "KV_"+bucket)
				if err != nil {
					return err
				}
				cluster := stream.CachedInfo().Cluster
				if cluster == nil || cluster.Leader == "" {
					return fmt.Errorf("the bucket %s has no leader", bucket)
				}
				leader, err = strconv.Atoi(cluster.Leader[1:])
				return err
			})
			if err == nil {
				return nil
			}
		}
		return err
	})
	return leader, err
}
