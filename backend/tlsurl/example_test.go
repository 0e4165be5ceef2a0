package tlsurl_test

import (
	"fmt"
	"log"

	"github.com/interlock-go/lock/backend"
	"github.com/interlock-go/lock/backend/tlsurl"
)

// A driver with the schemes toy:// and toys://, of which toys:// uses TLS, reads its URL.
func ExampleRead() {
	u, err := backend.ParseURL("toys://lock.internal:7000/?tls_server_name=lock.example.com")
	if err != nil {
		log.Fatal(err)
	}
	files := tlsurl.Read(u.Params)
	config, err := files.Config(u.Scheme == "toys", "toys://")
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(config.ServerName)
	_, err = files.Config(false, "toys://") // the same parameters in a toy:// URL
	fmt.Println(err)
	// Output:
	// lock.example.com
	// invalid URL: tls_ca, tls_cert, tls_key and tls_server_name need toys://
}
