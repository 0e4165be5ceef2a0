package otellock_test

import (
	"strings"

	"go.opentelemetry.io/otel/attribute"
)

// encoder encodes attributes without their common prefix.
type encoder struct{}

func (encoder) Encode(it attribute.Iterator) string {
	var out []string
	for it.Next() {
		kv := it.Attribute()
		out = append(out, strings.TrimPrefix(string(kv.Key), "interlock.")+"="+kv.Value.String())
	}
	return strings.Join(out, " ")
}

func (encoder) ID() attribute.EncoderID { return attribute.EncoderID{} }
