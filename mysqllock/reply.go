package mysqllock

import (
	"database/sql"
	"fmt"
	"time"

	"github.com/interlock-go/lock/backend"
)

// Statuses of replies.
const (
	granted = "granted"
	held    = "held"
	refused = "refused"
	busy    = "busy" // another transaction has locked the row of the holder, or that of the lock
)

// reply is what a procedure answers. Times are in microseconds.
type reply struct {
	sent            time.Time
	status          string
	clock           int64
	token, lease    sql.NullInt64
	age             sql.NullInt64
	weight          int
	capacity        int
	pass, ask       int64
	noPlace, watch  bool
	owner           sql.NullString
	metadata, slots []byte
}

// replies reads a result set, which has a row at least.
func replies(rows *sql.Rows) (all []reply, err error) {
	columns, err := rows.Columns()
	if err != nil {
		return nil, err
	}
	to := make([]any, len(columns))
	for rows.Next() {
		var r reply
		for i, name := range columns {
			if to[i] = r.field(name); to[i] == nil {
				return nil, fmt.Errorf("a column %q in a reply", name)
			}
		}
		if err := rows.Scan(to...); err != nil {
			return nil, err
		}
		all = append(all, r)
	}
	if err := rows.Err(); err != nil || len(all) > 0 {
		return all, err
	}
	return nil, sql.ErrNoRows
}

func (r *reply) field(name string) any {
	switch name {
	case "status":
		return &r.status
	case "clock":
		return &r.clock
	case "token":
		return &r.token
	case "lease":
		return &r.lease
	case "age":
		return &r.age
	case "weight":
		return &r.weight
	case "capacity":
		return &r.capacity
	case "pass":
		return &r.pass
	case "ask":
		return &r.ask
	case "no_place":
		return &r.noPlace
	case "watch":
		return &r.watch
	case "owner":
		return &r.owner
	case "metadata":
		return &r.metadata
	case "slots":
		return &r.slots
	}
	return nil
}

func micros(us int64) time.Duration { return time.Duration(us) * time.Microsecond }

func (r *reply) now() time.Duration { return micros(r.clock) }

// holder returns the holder in a reply, nil if there is none.
func (r *reply) holder() *backend.Holder {
	if !r.owner.Valid {
		return nil
	}
	return &backend.Holder{
		Contender: backend.Contender{
			Owner: r.owner.String, Metadata: string(r.metadata), Age: micros(max(r.age.Int64, 0)),
			Share: backend.Share{Weight: r.weight, Capacity: r.capacity},
		},
		Token: uint64(r.token.Int64), Left: micros(max(r.lease.Int64, 0)), Slots: parseSlots(r.slots),
	}
}

// parseSlots returns the permits of a string with a digit for each, 1 if it is held.
func parseSlots(s []byte) (slots []int) {
	for i, c := range s {
		if c == '1' {
			slots = append(slots, i)
		}
	}
	return slots
}
