// Toyctl is lockctl for toy:// URLs: an example of a command for a driver of your own.
package main

import (
	_ "github.com/interlock-go/lock/examples/toydriver/plain" // registers toy://
	"github.com/interlock-go/lock/lockcmd"
)

func main() { lockcmd.Program{Name: "toyctl"}.Main() }
