module github.com/interlock-go/lock/examples/toydriver

go 1.26.0

require (
	github.com/interlock-go/lock v0.0.0
	github.com/interlock-go/lock/conformance v0.0.0
	github.com/interlock-go/lock/lockcmd v0.0.0
)

require (
	github.com/anishathalye/porcupine v1.3.1 // indirect
	golang.org/x/sys v0.49.0 // indirect
)

replace (
	github.com/interlock-go/lock => ../../
	github.com/interlock-go/lock/conformance => ../../conformance
	github.com/interlock-go/lock/lockcmd => ../../lockcmd
)
