module github.com/interlock-go/lock/mysqllock

go 1.25.0

require (
	github.com/go-sql-driver/mysql v1.10.1
	github.com/interlock-go/lock v0.0.0
)

require filippo.io/edwards25519 v1.2.0 // indirect

replace github.com/interlock-go/lock => ../
