package locktest

import (
	"math/rand/v2"
	"net"
	"strconv"
)

// FreePort returns a port of 127.0.0.1 that no server uses, nor the port 10,000 above it, which a node of a Redis
// Cluster uses too. The kernel gives neither of them to a client: until a server listened there, one did get a port that
// the kernel had called free.
func FreePort() int {
	for {
		port := 10000 + rand.IntN(12768) // clients have 32768 and above
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
