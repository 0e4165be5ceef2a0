//go:build !linux

package provision

import (
	"fmt"
	"net"
	"strconv"
)

// reservedPort is a loopback port that was free when it was asked for. Only Linux lets us keep it for a server that
// is down.
type reservedPort struct{ port int }

func reservePort() (*reservedPort, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("reserve a port: %w", err)
	}
	defer l.Close()
	return &reservedPort{port: l.Addr().(*net.TCPAddr).Port}, nil
}

func (p *reservedPort) addr() string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(p.port)) }

func (p *reservedPort) release() {}
