package memcachelock

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"hash/fnv"
	"net"
	"strings"
)

// server is a server of the list, with the name by which it gets its share of the keys.
type server struct {
	name string
	*node
}

// servers share the keys by rendezvous hashing: if one is removed from the list, only its keys move.
type servers []server

func (all servers) node(key string) *node {
	best, most := 0, uint64(0)
	for i, s := range all {
		h := fnv.New64a()
		_, _ = h.Write([]byte(s.name + "\x00" + key))
		if sum := mix(h.Sum64()); i == 0 || sum > most {
			best, most = i, sum
		}
	}
	return all[best].node
}

// close closes the idle connections.
func (all servers) close() (err error) {
	for _, s := range all {
		err = errors.Join(err, s.client.Close())
	}
	return err
}

// address is a host and port, whose name is resolved for each connection, or the path of a Unix socket. It is the
// memcache.ServerSelector of a client for that server.
type address struct{ network, text string }

func (a address) Network() string                     { return a.network }
func (a address) String() string                      { return a.text }
func (a address) PickServer(string) (net.Addr, error) { return a, nil }
func (a address) Each(f func(net.Addr) error) error   { return f(a) }

// mix spreads the bits of a hash: those of FNV depend little on the first characters.
func mix(x uint64) uint64 {
	x = (x ^ x>>33) * 0xff51afd7ed558ccd
	x = (x ^ x>>33) * 0xc4ceb9fe1a85ec53
	return x ^ x>>33
}

// dialer opens connections.
type dialer struct {
	tls            *tls.Dialer // or nil
	user, password string
}

// errDial marks errors of connections that were not opened.
var errDial = errors.New("no connection")

func (d *dialer) dial(ctx context.Context, network, addr string) (net.Conn, error) {
	open := (&net.Dialer{}).DialContext
	if d.tls != nil {
		open = d.tls.DialContext
	}
	conn, err := open(ctx, network, addr)
	if err == nil && d.user != "" {
		if err = d.login(ctx, conn); err != nil {
			_ = conn.Close()
		}
	}
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errDial, err)
	}
	return conn, nil
}

// login sends user and password as the server wants them with its option --auth-file: as the
// value of a set, which must be the first command of a connection.
func (d *dialer) login(ctx context.Context, conn net.Conn) error {
	if deadline, ok := ctx.Deadline(); ok {
		_ = conn.SetDeadline(deadline)
	}
	secret := d.user + " " + d.password
	if _, err := fmt.Fprintf(conn, "set auth 0 0 %d\r\n%s\r\n", len(secret), secret); err != nil {
		return err
	}
	reply, err := bufio.NewReaderSize(conn, 256).ReadString('\n') // the server sends nothing more by itself
	switch {
	case err != nil:
		return err
	case strings.TrimSpace(reply) != "STORED":
		return fmt.Errorf("the server does not accept the user %q and its password", d.user)
	}
	return nil
}
