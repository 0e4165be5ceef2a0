package s3lock

import (
	"context"
	"errors"
	"fmt"
	"net/http"

	"github.com/interlock-go/lock/backend"
	"github.com/interlock-go/lock/backend/record"
)

// impossible is the ETag of no object: it has the form of an MD5 sum.
const impossible = `"00000000000000000000000000000000"`

// probe verifies that the store applies the conditions of a write. It makes two requests, which a
// store refuses that does, and a third one where the probe was never made.
func (b *Backend) probe(ctx context.Context) error {
	key, value := b.opt.prefix+"/"+probeName, []byte("{}")
	_, err := b.put(ctx, key, value, "", nil)
	if err == nil { // now it exists
		_, err = b.put(ctx, key, value, "", nil)
	}
	if err := conditional(err, "If-None-Match"); err != nil {
		return err
	}
	_, err = b.put(ctx, key, value, impossible, nil)
	return conditional(err, "If-Match")
}

// conditional returns why a store cannot be used, if the write that the condition forbids ended
// with err.
func conditional(err error, header string) error {
	switch {
	case errors.Is(err, record.ErrChanged):
		return nil
	case err == nil:
		return fmt.Errorf("%w store: it ignores the condition %s of PutObject, so two clients would get one lock: want a store with conditional writes", backend.ErrInvalid, header)
	case status(err) == http.StatusNotImplemented:
		return fmt.Errorf("%w store: it does not implement the condition %s of PutObject: %w", backend.ErrInvalid, header, err)
	}
	return err
}
