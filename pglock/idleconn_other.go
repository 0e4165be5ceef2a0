//go:build !unix

package pglock

import "net"

// hasNoInput is not available on this system: each connection is pinged.
func hasNoInput(net.Conn) bool { return false }
