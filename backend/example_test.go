package backend_test

import (
	"errors"
	"fmt"
	"log"
	"time"

	"github.com/interlock-go/lock/backend"
)

// A driver reads its parameters and then asks for the first one that is wrong.
func ExampleParams() {
	u, err := backend.ParseURL("toy://lock.internal:7000/shop?retention=48h&retries=many")
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(u.Hosts, u.Path)
	fmt.Println(u.Params.Retention())
	fmt.Println(u.Params.Int("retries", 3, 0, 10))
	fmt.Println(u.Params.Err())
	// Output:
	// [lock.internal:7000] /shop
	// 48h0m0s
	// 3
	// invalid URL parameter retries "many": want a whole number from 0 to 10
}

// What was certainly not executed leaves nothing behind. Of any other error a driver does not
// know whether the service has executed the request.
func ExampleNotExecuted() {
	refused := backend.NotExecuted(errors.New("toy: connection refused"))
	cut := errors.New("toy: connection reset while waiting for the reply")
	fmt.Println(backend.OutcomeUnknown(refused), backend.OutcomeUnknown(cut))
	// Output: false true
}

func ExampleCheckRetention() {
	fmt.Println(backend.CheckRetention(time.Second))
	// Output: invalid retention 1s: want 1m or more, or 0 to remove nothing
}
