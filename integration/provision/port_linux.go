package provision

import (
	"fmt"
	"net"
	"strconv"
	"syscall"
)

// reservedPort is a free loopback port that stays ours while its server is down. The socket is bound with
// SO_REUSEADDR and never listens: Linux then lets a server bind the port as well, refuses connections while none
// does, and gives the port to no program that asks for any free one.
type reservedPort struct {
	port int
	fd   int
}

func reservePort() (*reservedPort, error) {
	fd, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("reserve a port: %w", err)
	}
	// Bound without SO_REUSEADDR first, so that the kernel picks a free port.
	err = syscall.Bind(fd, &syscall.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}})
	var name syscall.Sockaddr
	if err == nil {
		err = syscall.SetsockoptInt(fd, syscall.SOL_SOCKET, syscall.SO_REUSEADDR, 1)
	}
	if err == nil {
		name, err = syscall.Getsockname(fd)
	}
	if err != nil {
		_ = syscall.Close(fd)
		return nil, fmt.Errorf("reserve a port: %w", err)
	}
	return &reservedPort{port: name.(*syscall.SockaddrInet4).Port, fd: fd}, nil
}

func (p *reservedPort) addr() string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(p.port)) }

func (p *reservedPort) release() {
	if p.fd >= 0 {
		_ = syscall.Close(p.fd)
		p.fd = -1
	}
}
