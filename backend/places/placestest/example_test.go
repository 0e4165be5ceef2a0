package placestest_test

import (
	"context"
	"fmt"
	"time"

	"github.com/interlock-go/lock/backend"
	"github.com/interlock-go/lock/backend/places"
	"github.com/interlock-go/lock/backend/places/placestest"
)

// A client makes requests of the service in memory.
func ExampleServer() {
	server := placestest.NewServer()
	client := server.Client()
	ctx := context.Background()
	session, err := client.Open(ctx, time.Minute)
	if err != nil {
		panic(err)
	}
	for i, owner := range []string{"first", "second"} {
		a, err := client.Put(ctx, places.Put{Request: backend.Request{Key: "k", Owner: owner}, Session: session, Mode: places.Enter, Number: i})
		if err != nil {
			panic(err)
		}
		fmt.Println(owner, a.Place.Order, a.Holds)
	}
	// Output:
	// first 1 true
	// second 2 false
}
