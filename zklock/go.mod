module github.com/interlock-go/lock/zklock

go 1.25.0

require (
	github.com/go-zookeeper/zk v1.0.4
	github.com/interlock-go/lock v0.0.0
)

replace github.com/interlock-go/lock => ../
