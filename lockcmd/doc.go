// Package lockcmd implements the commands of lockctl: run, elect, inspect, list,
// watch, top, break, ping, schema, man, version and completion.
//
// The package imports no driver. A program imports the drivers that it needs, and
// has all commands for their URLs:
//
//	import (
//		_ "example.com/mydriver"
//		"github.com/interlock-go/lock/lockcmd"
//	)
//
//	func main() { lockcmd.Program{Name: "myctl"}.Main() }
//
// A program can also have commands of its own: Program.Commands returns them, and App
// gives them the URL, the output and the exit codes of the others.
package lockcmd
