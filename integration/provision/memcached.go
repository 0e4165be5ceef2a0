package provision

import (
	"bufio"
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"net/url"
	"regexp"
	"strconv"
	"testing"
	"time"
)

// Memcached is the flavour of Memcached that the tests know.
const Memcached = "memcached"

var memcachedVersion = regexp.MustCompile(`(?m)^(?:VERSION|memcached) (\S+)`)

var memcachedKind = kind{
	flavour: Memcached, service: "memcached", official: "memcached:1.6", binaries: []string{"memcached"}, port: 11211,
	args: memcachedArgs, url: memcachedURL, probe: memcachedProbe,
	binaryVersion: func(output string) string { return firstMatch(memcachedVersion, output) },
}

// NewMemcached starts a server for this test alone, which may stop, pause, kill and restart it. A
// restart loses its data.
func NewMemcached(t testing.TB, o Options) *Server {
	t.Helper()
	return newPrivate(t, memcachedKind, o)
}

func memcachedArgs(host string, port int, _ string, o Options) []string {
	args := []string{"-u", "root", "-l", host, "-p", strconv.Itoa(port)} // root may only run it as a named user
	if o.TLS != nil {
		args = append(args, "--enable-ssl", "-o", "ssl_chain_cert="+o.TLS.CertFile+",ssl_key="+o.TLS.KeyFile)
	}
	return args
}

func memcachedURL(addr string, o Options) string {
	u := url.URL{Scheme: "memcached", Host: addr}
	if o.TLS != nil {
		u.Scheme = "memcacheds"
	}
	if o.Password != "" {
		u.User = url.UserPassword(o.Username, o.Password)
	}
	return u.String()
}

// memcachedProbe asks for the version, which a server with users returns only after a login.
func memcachedProbe(ctx context.Context, server string, o Options) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	u, err := url.Parse(server)
	if err != nil {
		return "", final{err}
	}
	dial := (&net.Dialer{}).DialContext
	if o.TLS != nil {
		dial = (&tls.Dialer{Config: o.TLS.Client()}).DialContext
	}
	conn, err := dial(ctx, "tcp", u.Host)
	if err != nil {
		return "", err
	}
	defer conn.Close()
	deadline, _ := ctx.Deadline()
	if err := conn.SetDeadline(deadline); err != nil {
		return "", err
	}
	replies := bufio.NewReader(conn)
	ask := func(request string) (string, error) {
		if _, err := conn.Write([]byte(request)); err != nil {
			return "", err
		}
		return replies.ReadString('\n')
	}
	if o.Password != "" {
		login := o.Username + " " + o.Password
		reply, err := ask(fmt.Sprintf("set x 0 0 %d\r\n%s\r\n", len(login), login))
		if err == nil && reply != "STORED\r\n" {
			err = fmt.Errorf("got %q", reply)
		}
		if err != nil {
			return "", fmt.Errorf("login: %w", err)
		}
	}
	reply, err := ask("version\r\n")
	version := firstMatch(memcachedVersion, reply)
	if err == nil && version == "" {
		err = fmt.Errorf("version: %q", reply)
	}
	return version, err
}
