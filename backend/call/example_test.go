package call_test

import (
	"context"
	"fmt"

	"github.com/interlock-go/lock/backend"
	"github.com/interlock-go/lock/backend/call"
)

// The context of the caller ends while the request waits for a connection: the request is withdrawn, and is certainly not
// executed.
func ExampleDetached() {
	life := call.NewLife() // of the backend
	ctx, cancel := context.WithCancel(context.Background())
	free := make(chan bool) // a connection
	_, err := call.Detached(ctx, life, func(_ context.Context, s *call.Sending) (string, error) {
		cancel()
		<-free
		fmt.Println("is it written?", s.Write())
		return "", nil
	})
	fmt.Println("is the outcome unknown?", backend.OutcomeUnknown(err))
	close(free)
	_ = life.Close(context.Background())
	// Output:
	// is the outcome unknown? false
	// is it written? false
}
