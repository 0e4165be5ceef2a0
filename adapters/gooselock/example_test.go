package gooselock_test

import (
	"context"
	"database/sql"
	"fmt"
	"log"

	"github.com/pressly/goose/v3"

	"github.com/interlock-go/lock"
	"github.com/interlock-go/lock/adapters/gooselock"
	_ "github.com/interlock-go/lock/memlock"
)

// One instance of an application migrates the database at a time.
func ExampleNew() {
	ctx := context.Background()
	c, err := lock.Open(ctx, "mem:")
	if err != nil {
		log.Fatal(err)
	}
	defer c.Close(ctx)
	versions := &table{versions: []int64{0}} // stands for a database
	db := sql.OpenDB(versions)
	defer db.Close()

	create := goose.NewGoMigration(1, &goose.GoFunc{RunTx: func(context.Context, *sql.Tx) error { return nil }}, nil)
	p, err := goose.NewProvider("", db, nil, goose.WithStore(versions), goose.WithGoMigrations(create),
		goose.WithSessionLocker(gooselock.New(c.Mutex("migrations"))))
	if err != nil {
		fmt.Println(err)
		return
	}
	results, err := p.Up(ctx)
	fmt.Println(len(results), err)
	// Output: 1 <nil>
}
