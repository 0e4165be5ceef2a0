package tlsurl_test

import (
	"fmt"
	"log"

	"github.com/interlock-go/lock/backend"
	"github.com/interlock-go/lock/backend/tlsurl"
)

// A driver reads the TLS settings of its URL.
func ExampleRead() {
	u, err := backend.ParseURL("toys://lock.internal:7000/?tls_server_name=lock.example.com")
	if err != nil {
		log.Fatal(err)
	}
	files := tlsurl.Read(u.Params)
	secure, err := files.Config(true, "toys://")
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(secure.ServerName)
	_, err = files.Config(false, "toys://")
	fmt.Println(err)
	// Output:
	// lock.example.com
	// invalid URL: tls_ca, tls_cert, tls_key and tls_server_name need toys://
}
