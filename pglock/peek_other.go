//go:build !unix

package pglock

import "net"

// silent is not known here.
func silent(net.Conn) bool { return false }
