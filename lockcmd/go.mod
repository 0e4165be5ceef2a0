module github.com/interlock-go/lock/lockcmd

go 1.26.0

require (
	github.com/interlock-go/lock v0.0.0
	golang.org/x/sys v0.49.0
)

replace github.com/interlock-go/lock => ../
