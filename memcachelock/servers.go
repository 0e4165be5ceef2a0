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

	"github.com/bradfitz/gomemcache/memcache"
)

// server is a host and port. The name is resolved for each connection.
type server string

func (server) Network() string  { return "tcp" }
func (s server) String() string { return string(s) }

// servers share the keys by rendezvous hashing: if one is removed from the list, only its keys move.
type servers []server

// PickServer implements memcache.ServerSelector.
func (all servers) PickServer(key string) (net.Addr, error) {
	var best server
	var most uint64
	for _, s := range all {
		h := fnv.New64a()
		_, _ = h.Write([]byte(string(s) + "\x00" + key))
		if sum := mix(h.Sum64()); best == "" || sum > most {
			best, most = s, sum
		}
	}
	return best, nil
}

// mix spreads the bits of a hash: those of FNV depend little on the first characters.
func mix(x uint64) uint64 {
	x = (x ^ x>>33) * 0xff51afd7ed558ccd
	x = (x ^ x>>33) * 0xc4ceb9fe1a85ec53
	return x ^ x>>33
}

// Each implements memcache.ServerSelector.
func (all servers) Each(f func(net.Addr) error) error {
	for _, s := range all {
		if err := f(s); err != nil {
			return err
		}
	}
	return nil
}

var _ memcache.ServerSelector = servers(nil)

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
