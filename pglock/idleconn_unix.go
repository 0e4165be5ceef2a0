//go:build unix

package pglock

import (
	"net"
	"syscall"
)

// hasNoInput reports whether a connection has nothing to read. Its server has then
// not closed it. It takes no round trip.
func hasNoInput(c net.Conn) bool {
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
	empty := false
	// Control and not Read: Read would wait for a reader that pgx may have left on the
	// connection.
	err = raw.Control(func(fd uintptr) {
		var b [1]byte
		_, _, err := syscall.Recvfrom(int(fd), b[:], syscall.MSG_PEEK|syscall.MSG_DONTWAIT)
		empty = err == syscall.EAGAIN || err == syscall.EINTR
	})
	return err == nil && empty
}
