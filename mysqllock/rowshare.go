package mysqllock

import (
	"database/sql"
	"fmt"
	"strings"
)

// readAfter are the parts of a read that depend on the packet before it.
type readAfter struct {
	packet  bool   // it is one of packetshare.go
	place   string // of the attempt in the queue, an expression
	here    string // whether the attempt holds the lock or waits for it, an expression
	getName bool   // the attempt gets its named lock
}

// selectShares is selectRow for locks with shares, and for requests for shares. Its first row is that
// of the lock; the lease that it shows is that of the holder which ends first. The others are the
// shared holders of this process, and the one with the lowest token. A waiter waits for the exclusive
// attempt ahead of it; one for the whole lock waits for the last shared holder if there is none.
const selectShares = `(SELECT 0 AS kind,owner,token,IF(expires={end},IFNULL((SELECT MIN(h.expires) FROM {table} h WHERE h.name={name} AND h.place>{shares}),0),expires),metadata,{now},served<last,
` + refused + `,IFNULL((SELECT p.place FROM {table} p WHERE p.name={name} AND p.place={at} AND p.place>0 AND p.place<{shares} AND p.owner={me}` + unserved + `),0),{ahead},{named},
unclaimed>0 OR EXISTS(SELECT 1 FROM {table} h WHERE h.name={name} AND h.place>{shares} AND h.unclaimed>0),{doomed},shares,expires={end},0,0,{present},{more},{last},IF(expires={end},IFNULL({first},0),0),IF(expires={end},IFNULL({deadline},0),0)
FROM {table} l WHERE {lock}{locking}) UNION ALL
(SELECT 1,owner,token,expires,metadata,{now},0,0,0,'',0,unclaimed>0,'',1,1,weight,capacity,slots,0,'',0,0 FROM {table}
WHERE name={name} AND place>{shares} AND (process={process} OR place=(SELECT MIN(g.place) FROM {table} g WHERE g.name={name} AND g.place>{shares})) ORDER BY place LIMIT 1000000)`

// aheadShare is ahead for a share. If there are shares ahead of that attempt, it is the exclusive attempt ahead of
// them: the waiter has to know when they are admitted. Those more than lookAhead places ahead are not considered.
var aheadShare = fmt.Sprintf(`COALESCE(NULLIF((SELECT y.owner FROM (SELECT x.owner,x.place,x.weight,LEAD(x.weight) OVER (ORDER BY x.place) AS follower,
MAX(IF(x.weight=0,x.place,NULL)) OVER () AS nearest FROM (SELECT b.owner,b.place,b.weight FROM {table} b WHERE b.name={name} AND b.place>=0 AND b.place<{at} ORDER BY b.place DESC LIMIT %d) x) y
WHERE y.weight=0 AND y.follower>0 AND y.place<y.nearest ORDER BY y.place DESC LIMIT 1),''),%s,'')`, lookAhead, ahead)

const (
	lookAhead   = 64
	aheadWriter = "IFNULL(" + ahead + ",'')"
	lastShare   = "IFNULL((SELECT h.owner FROM {table} h WHERE h.name={name} AND h.place>{shares} ORDER BY h.place DESC LIMIT 1),'')"
	firstWaiter = "(SELECT f.%s FROM {table} f WHERE f.name={name} AND f.place>0 AND f.place<{shares} AND f.place>l.served ORDER BY f.place LIMIT 1)"
)

// readShares returns selectShares for an attempt.
func (b *Backend) readShares(v values, after readAfter) string {
	aheadOf, last, named, doomed, present, more := aheadShare, "''", "0", "''", "''", "0"
	if v.req.Share.Exclusive() {
		aheadOf, last = aheadWriter, lastShare
	}
	if after.packet {
		doomed, present = "CONCAT_WS(',',@interlock_doomed,@interlock_overdue)", "IFNULL(@interlock_present,'')"
		more = moreFit
	}
	if after.getName {
		named = "IF(" + after.here + ",GET_LOCK(" + b.notifier.name(v.req.Owner) + ",1),0)"
	}
	aheadOf = strings.NewReplacer("{at}", after.place, "{behind}", after.place).Replace(aheadOf)
	s := strings.NewReplacer("{ahead}", aheadOf, "{at}", after.place, "{named}", named,
		"{doomed}", doomed, "{present}", present, "{more}", more, "{last}", last,
		"{first}", fmt.Sprintf(firstWaiter, "place"), "{deadline}", fmt.Sprintf(firstWaiter, "expires"), "{locking}", b.lockingRead).Replace(selectShares)
	return b.sql(s, v)
}

// scanShares reads the result of a statement of Backend.readShares into s.
func scanShares(rows *sql.Rows, s *rowState) error {
	for rows.Next() {
		var r rowState
		var kind int
		var named sql.NullBool
		var slots string
		err := rows.Scan(&kind, &r.owner, &r.token, &r.expires, &r.metadata, &r.now, &r.waiters, &r.abandoned, &r.place, &r.ahead, &named,
			&r.unclaimed, &r.doomed, &r.shares, &r.shared, &r.share.Weight, &r.share.Capacity, &slots, &r.more,
			&r.last, &r.first, &r.deadline)
		if err != nil {
			return err
		}
		if kind == 0 {
			r.named, r.sent, r.present = named.Bool, s.sent, parsePresent(slots)
			*s = r
			continue
		}
		r.waiters, r.slots = s.waiters, parseSlots(slots)
		s.holders = append(s.holders, r)
	}
	return rows.Err()
}
