package mysqllock

import (
	"database/sql"
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
// shared holders of this process, and the one with the lowest token. A waiter for a share waits
// for the exclusive request ahead of it; one for the whole lock waits for the attempt ahead of it, which
// may be the last shared holder.
const selectShares = `(SELECT 0 AS kind,owner,token,IF(expires={end},IFNULL((SELECT MIN(h.expires) FROM {table} h WHERE h.name={name} AND h.place>{shares}),0),expires),metadata,{now},served<last,
` + refused + `,IFNULL((SELECT p.place FROM {table} p WHERE p.name={name} AND p.place={at} AND p.place>0 AND p.place<{shares} AND p.owner={me}),0),{ahead},{named},
unclaimed>0 OR EXISTS(SELECT 1 FROM {table} h WHERE h.name={name} AND h.place>{shares} AND h.unclaimed>0),{doomed},shares,expires={end},0,0,{present},{more}
FROM {table} l WHERE {lock}{locking}) UNION ALL
(SELECT 1,owner,token,expires,metadata,{now},0,0,0,'',0,unclaimed>0,'',1,1,weight,capacity,slots,0 FROM {table}
WHERE name={name} AND place>{shares} AND (process={process} OR place=(SELECT MIN(g.place) FROM {table} g WHERE g.name={name} AND g.place>{shares})) ORDER BY place LIMIT 1000000)`

const (
	aheadShare  = "IFNULL((SELECT a.owner FROM {table} a WHERE a.name={name} AND a.place>=0 AND a.place<{at} AND a.weight=0 ORDER BY a.place DESC LIMIT 1),'')"
	aheadWriter = "COALESCE(NULLIF((SELECT a.owner FROM {table} a WHERE a.name={name} AND a.place>=0 AND a.place<{at} ORDER BY a.place DESC LIMIT 1),'')," +
		"(SELECT h.owner FROM {table} h WHERE h.name={name} AND h.place>{shares} ORDER BY h.place DESC LIMIT 1),'')"
)

// readShares returns selectShares for an attempt.
func (b *Backend) readShares(v values, after readAfter) string {
	ahead, named, doomed, present, more := aheadShare, "0", "''", "''", "0"
	if v.req.Share.Exclusive() {
		ahead = aheadWriter
	}
	if after.packet {
		doomed, present = "IFNULL(@interlock_doomed,'')", "IFNULL(@interlock_present,'')"
		more = moreFit
	}
	if after.getName {
		named = "IF(" + after.here + ",GET_LOCK(" + b.notifier.name(v.req.Owner) + ",1),0)"
	}
	s := strings.NewReplacer("{ahead}", strings.ReplaceAll(ahead, "{at}", after.place), "{at}", after.place, "{named}", named,
		"{doomed}", doomed, "{present}", present, "{more}", more, "{locking}", b.lockingRead).Replace(selectShares)
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
			&r.unclaimed, &r.doomed, &r.shares, &r.shared, &r.share.Weight, &r.share.Capacity, &slots, &r.more)
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
