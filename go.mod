module github.com/interlock-go/lock

go 1.25.0
