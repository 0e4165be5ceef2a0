package mysqllock

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/interlock-go/lock/backend"
)

const (
	provisionalTTL = 3 * time.Second // of a grant by a release, until the new holder renews it
	tombstoneFor   = 5 * time.Minute // longer than data of a dead connection can be in flight
	maxUnclaimed   = 4               // grants in a row, after which a waiter that asks is served first
	deadAfter      = time.Hour       // after the end of a lease its waiters have died: each gives up after its TTL
)

// The fragments of the statements. In statement.go and packet.go:
//
//	{table}  the table
//	{lock}   the condition for the row of the lock
//	{now}    the server's clock in UTC, in microseconds, the same throughout a statement. A
//	         statement that waited for the row uses the time of its beginning, which is safe:
//	         leases end early, never late.
//	{name}, {me}, {process}, {metadata}, {ttl}, {place}, {grave}
//	         values of the attempt: of the last two, the place in the queue and that of the
//	         tombstone
//	{share}, {weight}, {capacity}
//	         likewise: the place of its row as a shared holder, and what it asks for
//	{shares} the place above which the rows of shared holders are
//	{end}    the end of a lock with shared holders
//
// User variables, with the prefix @interlock_, pass values between the statements of a packet.
const (
	nowFragment = "TIMESTAMPDIFF(MICROSECOND,'1970-01-01',UTC_TIMESTAMP(6))"
	// Greater than each token of the name before, also if its row was deleted. The subquery in
	// FROM is what lets an INSERT read its own table.
	firstToken = "GREATEST({now},IFNULL((SELECT token FROM (SELECT token FROM {table} WHERE name='' AND place=0 LIMIT 1 LOCK IN SHARE MODE) f),0)+1)"
	nextToken  = "GREATEST(token+1,{now})"
	// No holder, no waiter and no tombstone.
	free = "expires<={now} AND served=last AND tombstones<={now}"
	none = "9223372036854775807" // a place that no row has
)

// values are the values of an attempt in statements.
type values struct {
	req   backend.Request
	place int64  // of the attempt in the queue; 0: none, or not known
	hold  bool   // the attempt holds the lock:
	share int64  // the place of its row as a shared holder; 0: that of the lock
	slots []int  // what it holds
	row   string // the name of the row, if not that of the key of req
}

// grave is the place of the tombstone of an attempt: it is found without an index on owners.
func grave(owner string) string {
	n, _ := strconv.ParseInt(owner[:min(15, len(owner))], 16, 64) // checkOwner has verified the form
	return strconv.FormatInt(-1-n, 10)
}

// wide begins a SELECT whose aggregates may be long.
func (b *Backend) wide() string {
	if b.mariaDB {
		return "SET STATEMENT group_concat_max_len=1048576 FOR SELECT"
	}
	return "SELECT /*+ SET_VAR(group_concat_max_len=1048576) */"
}

// sql replaces the fragments of a statement.
func (b *Backend) sql(statement string, v values) string {
	return b.fragments(v).Replace(statement)
}

func (b *Backend) fragments(v values) *strings.Replacer {
	owner, name := v.req.Owner, v.row
	if name == "" {
		name = b.key(v.req.Key)
	}
	return strings.NewReplacer(
		"{table}", b.table.quoted(), "{now}", nowFragment,
		"{lock}", "name="+lit(name)+" AND place=0", "{name}", lit(name),
		"{me}", lit(owner), "{process}", lit(b.process), "{metadata}", lit(v.req.Metadata),
		"{ttl}", strconv.FormatInt(millis(v.req.TTL)*1000, 10), "{place}", strconv.FormatInt(v.place, 10), "{grave}", grave(owner),
		"{shares}", sharesFragment, "{end}", endFragment, "{share}", strconv.FormatInt(v.share, 10), "{kept}", "TRUE", "{wide}", b.wide(),
		"{weight}", strconv.Itoa(v.req.Share.Weight), "{capacity}", strconv.Itoa(v.req.Share.Capacity),
	)
}

// In an UPDATE each assignment sees the new values of those before it. So expires, on which
// the others depend, is the last one.

// ask grants the key to the attempt if that is free.
var ask = strings.ReplaceAll(`INSERT INTO {table} (name,place,owner,process,metadata,granted,expires,token,served,last)
VALUES ({name},0,{me},{process},{metadata},{now},{now}+{ttl},`+firstToken+`,{now},{now})
ON DUPLICATE KEY UPDATE token=IF({free},`+nextToken+`,token),owner=IF({free},{me},owner),process=IF({free},{process},process),
metadata=IF({free},{metadata},metadata),granted=IF({free},{now},granted),unclaimed=IF({free},0,unclaimed),
expires=IF({free},{now}+{ttl},expires)`, "{free}", free)

// selectRow reads the row of the lock, for an attempt with a place in the queue. {ahead} is the
// attempt ahead of it, {named} whether it gets its named lock.
const selectRow = `SELECT owner,token,expires,metadata,{now},served<last,
` + refused + `,{at},IFNULL({ahead},''),{named},unclaimed>0,` + notDoomed + `,shares FROM {table} l WHERE {lock}{locking}`

const notDoomed = "'' AS doomed"

// ahead is the exclusive attempt ahead in the queue, or the exclusive holder. When it leaves, the shares behind it are
// admitted, and a waiter behind those has to know that it waits beside them, see deadline.go.
const ahead = "(SELECT a.owner FROM {table} a WHERE a.name={name} AND a.place>=0 AND a.place<{behind} AND a.weight=0 ORDER BY a.place DESC LIMIT 1)"

// read returns selectRow. at is an expression for the place of the attempt, and behind the same
// without a subquery, so that it limits a range.
func (b *Backend) read(v values, at, behind string, getName bool) string {
	named := "0"
	if getName { // a waiter that enters the queue before that finds the named lock free and polls
		named = fmt.Sprintf("IF(owner={me} OR %s>0,GET_LOCK(%s,1),0)", at, b.notifier.name(v.req.Owner))
	}
	s := strings.NewReplacer("{ahead}", strings.ReplaceAll(ahead, "{behind}", behind), "{at}", at, "{named}", named, "{locking}", b.lockingRead).Replace(selectRow)
	return b.sql(s, v)
}

// updateHeld changes the row of the holder at a place if the attempt owner holds the key. The assignments must always
// change the row, so that the count of rows is the same with and without clientFoundRows.
func (b *Backend) updateHeld(req backend.Request, at, assignments, and string) string {
	where := "{lock}"
	if at != "0" {
		where = "name={name} AND place IN (" + at + ")"
	}
	return b.sql("UPDATE {table} SET "+assignments+" WHERE "+where+" AND owner={me} AND expires>{now}"+and, values{req: req})
}

// renew extends a lease and never shortens it.
func (b *Backend) renew(req backend.Request, at string, ttl time.Duration) string {
	return b.updateHeld(req, at, fmt.Sprintf("unclaimed=0,expires=GREATEST(expires+1,{now}+%d)", millis(ttl)*1000), "")
}

// keep sets the end of a lease, sooner or later than it was.
func (b *Backend) keep(req backend.Request, at string, d time.Duration) string {
	return b.updateHeld(req, at, strings.ReplaceAll("unclaimed=0,expires=IF(expires={end},expires+1,{end})", "{end}", fmt.Sprintf("{now}+%d", millis(d)*1000)), "")
}

// millis is d in milliseconds, rounded up.
func millis(d time.Duration) int64 { return int64((d + time.Millisecond - 1) / time.Millisecond) }
