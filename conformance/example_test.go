package conformance_test

import (
	"context"
	"fmt"
	"log"

	"github.com/interlock-go/lock/backend"
	"github.com/interlock-go/lock/conformance"
	"github.com/interlock-go/lock/memlock"
)

// A program that checks a driver, without package testing.
func ExampleCheck() {
	space := memlock.NewSpace()
	h := conformance.Harness{
		Name: "mem",
		Open: func(context.Context) (backend.Backend, error) { return space.Backend(), nil },
	}
	rep, err := conformance.Check(context.Background(), h, conformance.Only("^exclusion/01"))
	if err != nil {
		log.Fatal(err)
	}
	for _, res := range rep.Results {
		fmt.Println(res.ID, res.Status)
	}
	fmt.Println(rep.OK())
	// Output:
	// exclusion/01-free-key-granted passed
	// exclusion/01-keys-independent passed
	// true
}
