package conformancelink_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"

	"github.com/interlock-go/lock/conformance/conformancelink"
)

// A client that connects through a link does not reach the service while the link is cut.
func ExampleNew() {
	service := httptest.NewServer(http.NotFoundHandler())
	defer service.Close()
	link, err := conformancelink.New(service.Listener.Addr().String())
	if err != nil {
		fmt.Println(err)
		return
	}
	defer link.Close()
	reached := func() bool {
		r, err := http.Get("http://" + link.Addr())
		if err == nil {
			_ = r.Body.Close()
		}
		return err == nil
	}
	fmt.Println(reached())
	link.Cut()
	fmt.Println(reached())
	link.Heal()
	fmt.Println(reached())
	// Output:
	// true
	// false
	// true
}
