package zklock

import (
	"context"
	"encoding/binary"
	"io"
	"net"
	"strings"
	"testing"
	"time"
)

// TestProbeOfASlowServer: a server that is slow ends the sessions with the least timeout before it answers. probe tries
// again a few times, and only then returns an error.
func TestProbeOfASlowServer(t *testing.T) {
	for name, c := range map[string]struct {
		ended int // sessions with the least timeout
		fails bool
	}{
		"fast":   {},
		"slow":   {ended: shortSessions - 1},
		"slower": {ended: shortSessions, fails: true},
	} {
		t.Run(name, func(t *testing.T) {
			ended := 0
			dial := func(context.Context, string) (net.Conn, error) {
				client, server := net.Pipe()
				go func() {
					defer server.Close()
					request := make([]byte, 4+44+12) // the handshake and the end of the session
					if _, err := io.ReadFull(server, request); err != nil {
						return
					}
					timeout := binary.BigEndian.Uint32(request[4+12:])
					if timeout == 1 {
						if ended++; ended <= c.ended {
							return
						}
					}
					reply := make([]byte, 4+37)
					binary.BigEndian.PutUint32(reply, 37)
					binary.BigEndian.PutUint32(reply[8:], min(max(timeout, 400), 60_000))
					_, _ = server.Write(reply)
				}()
				return client, nil
			}
			got, err := probe(t.Context(), dial, []string{"zk.example:2181"}, 10*time.Second)
			switch {
			case c.fails:
				if err == nil || !strings.Contains(err.Error(), "closed the connection") {
					t.Errorf("want an error that says that the server closed the connection, got %v", err)
				}
			case err != nil || got != limits{400 * time.Millisecond, time.Minute}:
				t.Errorf("want the limits 400ms and 1m, got %v, %v", got, err)
			}
		})
	}
}
