package mysqllock

import (
	"fmt"
	"strings"
	"time"

	"github.com/interlock-go/lock/backend"
)

const (
	provisionalTTL = 3 * time.Second // of a grant by a release, until the new holder renews it
	tombstoneFor   = 5 * time.Minute // longer than data of a dead connection can be in flight
	maxTombstones  = 256             // of a row
	maxQueue       = 1 << 20         // bytes; far below any max_allowed_packet
)

// now is the server's clock in UTC, the same throughout a statement. A statement that waited
// for the row uses the time of its beginning, which is safe: leases end early, never late.
const now = "TIMESTAMPDIFF(MICROSECOND,'1970-01-01',UTC_TIMESTAMP(6))"

// Expressions that read the first entry of a queue that is not empty, and the rest.
var (
	headOwner = fmt.Sprintf("SUBSTRING(queue,%d,%d)", entryOwner, ownerLen)
	headMeta  = fmt.Sprintf("SUBSTRING(SUBSTRING_INDEX(SUBSTRING(queue,2),';',1),%d)", entryMeta-1)
	headTTL   = fmt.Sprintf("LEAST(CAST(SUBSTRING(queue,%d,%d) AS UNSIGNED)*1000,%d)", entryTTL, ttlDigits, provisionalTTL.Microseconds())
	// The lease ended so long ago that no waiter is left: a waiter requests the key soon after
	// the end, and gives up when the server does not answer for its TTL.
	deadQueue = fmt.Sprintf("expires<%s-%d-CAST(SUBSTRING(queue,%d,%d) AS UNSIGNED)*1000", now, time.Hour.Microseconds(), entryTTL, ttlDigits)
	tail      = "IF(LOCATE(';',queue,2)>0,SUBSTRING(queue,LOCATE(';',queue,2)),'')"
)

// In all statements the order of the assignments matters: each sees the new values of those
// before it. The column step has the decision, which is made on the old values.

const (
	insertRow = "INSERT INTO %[1]s (name,token,owner,metadata,expires,granted,queue,gone,gone_until,step) VALUES "
	onRow     = " ON DUPLICATE KEY UPDATE "
)

// acquire grants the key to the attempt if it is free and the attempt is the first waiter or
// the queue is empty (step 1). It grants a free key to the first waiter (2). It does not
// change a key that is held (0), and refuses an abandoned attempt (3). With join the attempt
// enters the queue.
func (b *Backend) acquire(req backend.Request, join bool) string {
	me, meta, ttl := lit(req.Owner), lit(escaper.Replace(req.Metadata)), millis(req.TTL)*1000
	enter := "''"
	if join {
		head, rest := entry(req)
		enter = fmt.Sprintf("IF(step IN (1,3) OR owner=%s OR LOCATE(%s,queue)>0 OR LENGTH(queue)>%d,'',CONCAT(%s,LPAD(%s,%d,'0'),%s))",
			me, queueMark(req.Owner), maxQueue, lit(head), now, joinedDigits, lit(rest))
	}
	return fmt.Sprintf(insertRow+`(%[2]s,%[3]s,%[4]s,%[5]s,%[3]s+%[6]d,%[3]s,'','',0,1)`+onRow+
		`queue=CASE WHEN queue='' THEN '' WHEN %[12]s THEN '' ELSE queue END,`+
		`step=CASE WHEN gone_until>%[3]s AND LOCATE(%[4]s,gone)>0 THEN 3 WHEN expires>%[3]s THEN 0 WHEN queue='' OR %[7]s=%[4]s THEN 1 ELSE 2 END,`+
		`token=IF(step IN (1,2),GREATEST(token+1,%[3]s),token),`+
		`metadata=CASE step WHEN 1 THEN %[5]s WHEN 2 THEN %[8]s ELSE metadata END,`+
		`owner=CASE step WHEN 1 THEN %[4]s WHEN 2 THEN %[7]s ELSE owner END,`+
		`expires=CASE step WHEN 1 THEN %[3]s+%[6]d WHEN 2 THEN %[3]s+%[9]s ELSE expires END,`+
		`granted=IF(step IN (1,2),%[3]s,granted),`+
		`queue=CONCAT(IF(step IN (1,2),%[10]s,queue),%[11]s),`+
		`gone=IF(gone_until>%[3]s,gone,'')`,
		b.table.quoted(), lit(b.key(req.Key)), now, me, meta, ttl, headOwner, headMeta, headTTL, tail, enter, deadQueue)
}

// queueMark is the beginning of the entry of an attempt in the queue.
func queueMark(owner string) string { return lit(";" + owner + ",") }

// selectRow reads a row, for the attempt owner if that is not empty. With getName it also
// gets the named lock of the attempt if the attempt is in the row. A waiter that enters the
// queue before that finds the named lock free and polls.
func (b *Backend) selectRow(key, owner string, getName bool) string {
	place, abandoned, named := "0", "0", "0"
	if owner != "" {
		place = fmt.Sprintf("LOCATE(%s,queue)", queueMark(owner))
		abandoned = fmt.Sprintf("gone_until>%s AND LOCATE(%s,gone)>0", now, lit(owner))
	}
	if getName {
		named = fmt.Sprintf("IF(owner=%s OR %s>0,GET_LOCK(%s,1),0)", lit(owner), place, b.notifier.name(owner))
	}
	return fmt.Sprintf("SELECT owner,token,expires,metadata,LEFT(queue,%[1]d),LENGTH(queue)<=%[1]d,%[2]s,%[3]s,%[4]s,%[5]s FROM %[6]s WHERE name=%[7]s%[8]s",
		maxQueueRead, now, place, abandoned, named, b.table.quoted(), lit(b.key(key)), b.lockingRead)
}

// leave are the assignments that remove an attempt from a row: they grant the key to the
// first waiter, or free it, if the attempt has the key (step 4), and remove it from the queue
// if not (5).
func leave(owner string) string {
	at := "LOCATE(" + queueMark(owner) + ",queue)"
	next := "LOCATE(';',queue," + at + "+1)"
	without := fmt.Sprintf("IF(%[1]s=0,queue,CONCAT(LEFT(queue,%[1]s-1),IF(%[2]s=0,'',SUBSTRING(queue,%[2]s))))", at, next)
	return strings.Join([]string{
		"step=IF(owner=" + lit(owner) + ",4,5)",
		"token=IF(step=5 OR queue='',token,GREATEST(token+1," + now + "))",
		"metadata=CASE WHEN step=5 THEN metadata WHEN queue='' THEN '' ELSE " + headMeta + " END",
		"owner=CASE WHEN step=5 THEN owner WHEN queue='' THEN '' ELSE " + headOwner + " END",
		"expires=CASE WHEN step=5 THEN expires WHEN queue='' THEN 0 ELSE " + now + "+" + headTTL + " END",
		"granted=IF(step=5,granted," + now + ")",
		"queue=CASE WHEN step=5 THEN " + without + " WHEN queue='' THEN '' ELSE " + tail + " END",
	}, ",")
}

// updateHeld changes the row if the attempt owner holds the key. The assignments must always
// change the row, so that the count of rows is the same with and without clientFoundRows.
func (b *Backend) updateHeld(key, owner, assignments string) string {
	return fmt.Sprintf("UPDATE %s SET %s WHERE name=%s AND owner=%s AND expires>%s", b.table.quoted(), assignments, lit(b.key(key)), lit(owner), now)
}

// release removes the attempt from the row if it holds the key. With bury it writes a
// tombstone.
func (b *Backend) release(key, owner string, bury bool) string {
	set := leave(owner)
	if bury {
		set += "," + tombstone(owner)
	}
	return b.updateHeld(key, owner, set)
}

// renew extends a lease and never shortens it.
func (b *Backend) renew(key, owner string, ttl time.Duration) string {
	return b.updateHeld(key, owner, fmt.Sprintf("expires=GREATEST(expires+1,%s+%d)", now, millis(ttl)*1000))
}

// keep sets the end of a lease, sooner or later than it was.
func (b *Backend) keep(key, owner string, d time.Duration) string {
	return b.updateHeld(key, owner, fmt.Sprintf("step=IF(step=6,7,6),expires=%s+%d", now, millis(d)*1000))
}

// tombstoneEnd is the end of a tombstone that is written now.
var tombstoneEnd = fmt.Sprintf("%s+%d", now, tombstoneFor.Microseconds())

// tombstone are the assignments that refuse later requests of an attempt.
func tombstone(owner string) string {
	return fmt.Sprintf("gone=CONCAT(RIGHT(IF(gone_until>%s,gone,''),%d),%s),gone_until=%s",
		now, (maxTombstones-1)*(ownerLen+1), lit(owner+";"), tombstoneEnd)
}

// abandon removes the attempt from the row, as holder or as waiter. With bury it writes a
// tombstone, into a new row if there is none.
func (b *Backend) abandon(req backend.Request, bury bool) string {
	if !bury {
		return fmt.Sprintf("UPDATE %s SET %s WHERE name=%s AND (owner=%s OR LOCATE(%s,queue)>0)",
			b.table.quoted(), leave(req.Owner), lit(b.key(req.Key)), lit(req.Owner), queueMark(req.Owner))
	}
	return fmt.Sprintf(insertRow+"(%[2]s,0,'','',0,0,'',%[3]s,%[4]s,5)"+onRow+"%[5]s,%[6]s",
		b.table.quoted(), lit(b.key(req.Key)), lit(req.Owner+";"), tombstoneEnd, leave(req.Owner), tombstone(req.Owner))
}

// millis is d in milliseconds, rounded up.
func millis(d time.Duration) int64 { return int64((d + time.Millisecond - 1) / time.Millisecond) }
