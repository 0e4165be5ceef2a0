//go:build unix

package pglock

import (
	"net"
	"syscall"
)

// silent says whether nothing is to be read from a connection, in which case its
// server has not closed it. It costs no round trip.
func silent(c net.Conn) bool {
	if t, ok := c.(interface{ NetConn() net.Conn }); ok { // TLS
		c = t.NetConn()
	}
	s, ok := c.(syscall.Conn)
	if !ok {
		return false
	}
	raw, err := s.SyscallConn()
	if err != nil {
		return false
	}
	quiet := false
	// Control and not Read, which would wait for a reader that the client library
	// may have left on the connection.
	err = raw.Control(func(fd uintptr) {
		var b [1]byte
		_, _, err := syscall.Recvfrom(int(fd), b[:], syscall.MSG_PEEK|syscall.MSG_DONTWAIT)
		quiet = err == syscall.EAGAIN || err == syscall.EINTR
	})
	return err == nil && quiet
}
