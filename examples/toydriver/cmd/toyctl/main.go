// Toyctl has the commands of lockctl for the URLs of the toy driver.
package main

import (
	_ "github.com/interlock-go/lock/examples/toydriver" // registers toy://
	"github.com/interlock-go/lock/lockcmd"
)

func main() { lockcmd.Program{Name: "toyctl"}.Main() }
