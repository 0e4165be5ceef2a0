// Command versitygw runs the S3 gateway of github.com/versity/versitygw over a directory. Of its own program it has what
// the tests use; that one needs half as long again to compile.
package main

import (
	"context"
	"flag"
	"fmt"
	"log"
	"os/signal"
	"runtime/debug"
	"syscall"

	"github.com/versity/versitygw/backend/meta"
	"github.com/versity/versitygw/backend/posix"
	"github.com/versity/versitygw/embedgw"
)

func main() {
	// The limits are the defaults of the gateway's own program.
	cfg := embedgw.Config{Quiet: true, MaxConnections: 250000, MaxRequests: 100000, MultipartMaxParts: 10000}
	flag.StringVar(&cfg.RootUserAccess, "access", "", "access key")
	flag.StringVar(&cfg.RootUserSecret, "secret", "", "secret key")
	flag.StringVar(&cfg.CertFile, "cert", "", "file of the certificate; none: without TLS")
	flag.StringVar(&cfg.KeyFile, "key", "", "file of the certificate's key")
	addr := flag.String("port", "127.0.0.1:7070", "address to listen on")
	version := flag.Bool("version", false, "print the version of the gateway")
	flag.Parse()
	if *version {
		printVersion()
		return
	}
	if flag.NArg() != 1 {
		log.Fatalf("versitygw: %d arguments: want one, the directory", flag.NArg())
	}
	cfg.Ports = []string{*addr}

	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	files, err := posix.New(flag.Arg(0), meta.XattrMeta{}, posix.PosixOpts{Concurrency: 5000})
	if err == nil {
		err = embedgw.RunVersityGW(ctx, files, &cfg)
	}
	if err != nil {
		log.Fatalf("versitygw: %v", err)
	}
}

func printVersion() {
	info, _ := debug.ReadBuildInfo()
	for _, m := range info.Deps {
		if m.Path == "github.com/versity/versitygw" {
			fmt.Println("versitygw version", m.Version)
		}
	}
}
