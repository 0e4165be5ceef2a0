module github.com/interlock-go/lock/memcachelock

go 1.26.0

require (
	github.com/bradfitz/gomemcache v0.0.0-20260422231931-4d751bb6e37c
	github.com/interlock-go/lock v0.0.0
	go.uber.org/goleak v1.3.0
)

replace github.com/interlock-go/lock => ../
