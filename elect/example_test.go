package elect_test

import (
	"context"
	"fmt"
	"time"

	"github.com/interlock-go/lock"
	"github.com/interlock-go/lock/elect"
	_ "github.com/interlock-go/lock/memlock"
)

// Every node runs this; one node leads. The metadata publishes the leader's address.
func ExampleCampaign() {
	ctx := context.Background()
	c, _ := lock.Open(ctx, "mem://cluster", lock.WithMetadata("10.0.0.7:8080"))
	defer c.Close(ctx)
	m := c.Mutex("scheduler")

	err := elect.Campaign(ctx, m, func(ctx context.Context) error {
		leader, err := elect.Leader(ctx, m)
		if err != nil {
			return err
		}
		fmt.Println("led by", leader.Metadata)
		return ctx.Err() // a real leader works until ctx ends
	})
	fmt.Println("resigned:", err)
	// Output:
	// led by 10.0.0.7:8080
	// resigned: <nil>
}

// Watch shows the leader to other processes.
func ExampleWatch() {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	c, _ := lock.Open(ctx, "mem:")
	defer c.Close(ctx)

	for leader, err := range elect.Watch(ctx, c.Mutex("scheduler"), time.Second) {
		switch {
		case err != nil:
			fmt.Println("unknown:", err)
		case leader == nil:
			fmt.Println("no leader")
		default:
			fmt.Println("led by", leader.Metadata)
		}
		cancel() // one answer is enough here
	}
	// Output: no leader
}
