package clienttest

import (
	"math/rand/v2"
	"net"
	"strconv"
)

// FreePort returns a port of 127.0.0.1 that no server uses, nor the port 10,000 above it, which a node of a Redis
// Cluster uses too. Linux gives neither of them to a client; a port that the kernel chooses may become that of a client
// before the server listens.
func FreePort() int {
	for {
		port := 10000 + rand.IntN(12768) // so that both are below 32768, where the ports of clients begin
		if free(port) && free(port+10000) {
			return port
		}
	}
}

func free(port int) bool {
	l, err := net.Listen("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(port)))
	if err != nil {
		return false
	}
	return l.Close() == nil
}
