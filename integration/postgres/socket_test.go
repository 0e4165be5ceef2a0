package postgres_test

import (
	"io"
	"net"
	"os"
	"path/filepath"
	"testing"

	"github.com/interlock-go/lock"
)

// TestSocket opens a client over a Unix socket, in each form of its URL.
func TestSocket(t *testing.T) {
	s, _ := server(t)
	dir, err := os.MkdirTemp("", "interlock-socket-") // the path of a socket has 107 bytes at most
	must(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	for _, port := range []string{"5432", "5433"} {
		forward(t, filepath.Join(dir, ".s.PGSQL."+port), s.Addr())
	}
	for _, url := range []string{
		"postgres://postgres@/postgres?host=" + dir,
		"postgres://postgres@" + dir + "?db=postgres&listen=" + s.Addr(),
		"postgres://postgres@/postgres?port=5433&host=" + dir,
		"postgresql://postgres@" + dir + "/.s.PGSQL.5433?db=postgres",
	} {
		c, err := lock.Open(t.Context(), url)
		if err != nil {
			t.Errorf("%s: %v", url, err)
			continue
		}
		handOver(t, c) // also listens
		must(t, c.Close(t.Context()))
	}
}

// forward accepts connections on a Unix socket and forwards them to a server.
func forward(t *testing.T, path, server string) {
	l, err := net.Listen("unix", path)
	must(t, err)
	t.Cleanup(func() { _ = l.Close() })
	go func() {
		for {
			client, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer client.Close()
				up, err := net.Dial("tcp", server)
				if err != nil {
					return
				}
				defer up.Close()
				go func() {
					_, _ = io.Copy(up, client)
					_ = up.Close()
				}()
				_, _ = io.Copy(client, up)
			}()
		}
	}()
}
