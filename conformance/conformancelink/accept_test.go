package conformancelink

import (
	"net"
	"syscall"
	"testing"
)

// failsOnce is a listener whose first Accept fails.
type failsOnce struct {
	net.Listener
	failed bool
}

func (l *failsOnce) Accept() (net.Conn, error) {
	if !l.failed {
		l.failed = true
		return nil, syscall.EMFILE
	}
	return l.Listener.Accept()
}

// A link accepts connections also after the process had too many open files.
func TestAcceptAfterAFailure(t *testing.T) {
	t.Parallel()
	up, _ := linked(t)
	k, err := NewOn(up.Addr(), func() (net.Listener, error) {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		return &failsOnce{Listener: l}, err
	})
	must(t, err)
	t.Cleanup(k.Close)
	answers(t, k)
}
