package httplock_test

import (
	"context"
	"fmt"
	"log"
	"net/http"
	"net/http/httptest"

	"github.com/interlock-go/lock"
	"github.com/interlock-go/lock/adapters/httplock"
	_ "github.com/interlock-go/lock/memlock"
)

// A payment that is repeated while the first one is under way is refused.
func ExampleMiddleware() {
	ctx := context.Background()
	c, err := lock.Open(ctx, "mem:")
	if err != nil {
		log.Fatal(err)
	}
	defer c.Close(ctx)

	mux := http.NewServeMux()
	pay := func(order string) int {
		w := httptest.NewRecorder()
		mux.ServeHTTP(w, httptest.NewRequest(http.MethodPost, "/orders/"+order+"/payment", nil))
		return w.Code
	}
	payments := httplock.Middleware{
		Mutex: func(r *http.Request) lock.Mutex { return c.Mutex("payments/" + r.PathValue("order")) },
	}
	mux.Handle("POST /orders/{order}/payment", payments.Handler(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		if r.PathValue("order") == "42" {
			fmt.Println("the same order:", pay("42"))
			fmt.Println("another order:", pay("43"))
		}
	})))
	fmt.Println("the first payment:", pay("42"))
	// Output:
	// the same order: 409
	// another order: 200
	// the first payment: 200
}
