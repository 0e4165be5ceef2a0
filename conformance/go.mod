module github.com/interlock-go/lock/conformance

go 1.25.0

require (
	github.com/anishathalye/porcupine v1.3.1
	github.com/interlock-go/lock v0.0.0
)

replace github.com/interlock-go/lock => ../
