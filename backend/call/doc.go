// Package call runs the requests of a driver whose client library does not return when a context ends, or leaves open
// whether it has sent the request.
//
// A driver has a [Life] for each backend, and sends each request by [Detached]:
//
//	reply, err := call.Detached(ctx, life, func(ctx context.Context, s *call.Sending) (string, error) {
//		return client.Send(ctx, request, s.Write) // which calls s.Write before it writes to a connection
//	})
//
// The caller gets the result, or an error that says what became of the request: it was not executed, or that is not known
// (see backend.NotExecuted and backend.Uncertain).
//
// [Batches] sends requests together that are made at the same time, if the client library has a connection for each.
//
// A [Context] limits a request, and costs nothing until it is waited for. [Sleep] is a pause that ends with a context.
package call
