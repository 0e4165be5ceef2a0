package mysqllock

import (
	"fmt"
	"strings"
	"time"

	"github.com/interlock-go/lock/backend"
)

const (
	claim        = 3 * time.Second // what a handed-over grant lasts until it is renewed
	tombstoneFor = 5 * time.Minute // longer than a dead connection's data can still arrive
	maxGone      = 256             // tombstones of a row
	maxQueue     = 1 << 20         // bytes; far below any max_allowed_packet
)

// now is the server's clock in UTC, the same throughout a statement. A statement
// that had to wait for the row uses the time of its beginning, which is the safe
// side: leases end early, never late.
const now = "TIMESTAMPDIFF(MICROSECOND,'1970-01-01',UTC_TIMESTAMP(6))"

// What follows reads the first entry of a queue that is not empty.
var (
	headOwner = fmt.Sprintf("SUBSTRING(queue,%d,%d)", entryOwner, ownerLen)
	headMeta  = fmt.Sprintf("SUBSTRING(SUBSTRING_INDEX(SUBSTRING(queue,2),';',1),%d)", entryMeta-1)
	headClaim = fmt.Sprintf("LEAST(CAST(SUBSTRING(queue,%d,%d) AS UNSIGNED)*1000,%d)", entryTTL, ttlDigits, claim.Microseconds())
	tail      = "IF(LOCATE(';',queue,2)>0,SUBSTRING(queue,LOCATE(';',queue,2)),'')"
)

// In all that follows the order of the assignments matters: each sees the new
// values of those before it. The column step holds the decision that was made
// on the old ones.

// acquire takes the key if it is free and it is the attempt's turn. If it is free
// and another's turn, that one gets it. With join the attempt enters the queue.
func (b *Backend) acquire(req backend.Request, join bool) string {
	me, meta, ttl := lit(req.Owner), lit(escaper.Replace(req.Metadata)), millis(req.TTL)*1000
	enter := "''"
	if join {
		head, rest := entry(req)
		enter = fmt.Sprintf("IF(step IN (1,3) OR owner=%s OR LOCATE(%s,queue)>0 OR LENGTH(queue)>%d,'',CONCAT(%s,LPAD(%s,%d,'0'),%s))",
			me, lit(";"+req.Owner+","), maxQueue, lit(head), now, joinedDigits, lit(rest))
	}
	return fmt.Sprintf(`INSERT INTO %[1]s (name,token,owner,metadata,expires,granted,queue,gone,gone_until,step) VALUES (%[2]s,%[3]s,%[4]s,%[5]s,%[3]s+%[6]d,%[3]s,'','',0,1)`+
		` ON DUPLICATE KEY UPDATE`+
		` step=CASE WHEN gone_until>%[3]s AND LOCATE(%[4]s,gone)>0 THEN 3 WHEN expires>%[3]s THEN 0 WHEN queue='' OR %[7]s=%[4]s THEN 1 ELSE 2 END,`+
		`token=IF(step IN (1,2),GREATEST(token+1,%[3]s),token),`+
		`metadata=CASE step WHEN 1 THEN %[5]s WHEN 2 THEN %[8]s ELSE metadata END,`+
		`owner=CASE step WHEN 1 THEN %[4]s WHEN 2 THEN %[7]s ELSE owner END,`+
		`expires=CASE step WHEN 1 THEN %[3]s+%[6]d WHEN 2 THEN %[3]s+%[9]s ELSE expires END,`+
		`granted=IF(step IN (1,2),%[3]s,granted),`+
		`queue=CONCAT(IF(step IN (1,2),%[10]s,queue),%[11]s),`+
		`gone=IF(gone_until>%[3]s,gone,'')`,
		b.table.quoted(), lit(b.key(req.Key)), now, me, meta, ttl, headOwner, headMeta, headClaim, tail, enter)
}

// image reads a row as all see it.
func (b *Backend) image(key string) string {
	return fmt.Sprintf("SELECT owner,token,expires,metadata,LEFT(queue,%d),LENGTH(queue)<=%d,%s FROM %s WHERE name=%s%s",
		seen, seen, now, b.table.quoted(), lit(b.key(key)), b.share)
}

// look reads how an attempt stands. With named it is given its name if it is in the
// row. Whoever comes behind it before that looks again soon.
func (b *Backend) look(req backend.Request, named bool) string {
	at := fmt.Sprintf("LOCATE(%s,queue)", lit(";"+req.Owner+","))
	name := "0"
	if named {
		name = fmt.Sprintf("IF(owner=%s OR %s>0,GET_LOCK(%s,1),0)", lit(req.Owner), at, b.bell.name(req.Owner))
	}
	return fmt.Sprintf("SELECT owner,token,expires,metadata,LEFT(queue,%d),LENGTH(queue)<=%d,%s,%s,gone_until>%s AND LOCATE(%s,gone)>0,%s FROM %s WHERE name=%s%s",
		seen, seen, now, at, now, lit(req.Owner), name, b.table.quoted(), lit(b.key(req.Key)), b.share)
}

// handOver are the assignments that give the key to the first in the queue, or
// free it.
var handOver = strings.Join([]string{
	"token=IF(queue='',token,GREATEST(token+1," + now + "))",
	"metadata=IF(queue='',''," + headMeta + ")",
	"owner=IF(queue='',''," + headOwner + ")",
	"expires=IF(queue='',0," + now + "+" + headClaim + ")",
	"granted=" + now,
	"queue=IF(queue='',''," + tail + ")",
}, ",")

// release gives the key to the next if owner has it and, with bury, refuses what the
// attempt sends later. It always changes the row if it finds it, so the count of rows
// means the same with and without clientFoundRows.
func (b *Backend) release(key, owner string, bury bool) string {
	set := handOver
	if bury {
		set += "," + tombstone(owner)
	}
	return fmt.Sprintf("UPDATE %s SET step=4,%s WHERE name=%s AND owner=%s AND expires>%s", b.table.quoted(), set, lit(b.key(key)), lit(owner), now)
}

// stoneUntil is the end of a tombstone that is made now.
var stoneUntil = fmt.Sprintf("%s+%d", now, tombstoneFor.Microseconds())

// tombstone are the assignments that refuse what an attempt sends later.
func tombstone(owner string) string {
	return fmt.Sprintf("gone=CONCAT(RIGHT(IF(gone_until>%s,gone,''),%d),%s),gone_until=%s",
		now, (maxGone-1)*(ownerLen+1), lit(owner+";"), stoneUntil)
}

// renew extends a lease, and never shortens one. It always changes expires, so that
// the row counts as changed.
func (b *Backend) renew(key, owner string, ttl time.Duration) string {
	return fmt.Sprintf("UPDATE %s SET expires=GREATEST(expires+1,%s+%d) WHERE name=%s AND owner=%s AND expires>%s",
		b.table.quoted(), now, millis(ttl)*1000, lit(b.key(key)), lit(owner), now)
}

// keep sets the end of a lease, sooner or later than it was. It always changes step.
func (b *Backend) keep(key, owner string, d time.Duration) string {
	return fmt.Sprintf("UPDATE %s SET step=IF(step=6,7,6),expires=%s+%d WHERE name=%s AND owner=%s AND expires>%s",
		b.table.quoted(), now, millis(d)*1000, lit(b.key(key)), lit(owner), now)
}

// abandon releases what the attempt has, takes it out of the queue and, with
// bury, refuses what it sends later.
func (b *Backend) abandon(req backend.Request, bury bool) string {
	me, mark := lit(req.Owner), lit(";"+req.Owner+",")
	// from its separator to the next one
	without := fmt.Sprintf("IF(LOCATE(%[1]s,queue)=0,queue,CONCAT(LEFT(queue,LOCATE(%[1]s,queue)-1),IF(LOCATE(';',queue,LOCATE(%[1]s,queue)+1)=0,'',SUBSTRING(queue,LOCATE(';',queue,LOCATE(%[1]s,queue)+1)))))", mark)
	set := strings.Join([]string{
		"step=IF(owner=" + me + ",4,5)",
		"token=IF(step=5 OR queue='',token,GREATEST(token+1," + now + "))",
		"metadata=CASE WHEN step=5 THEN metadata WHEN queue='' THEN '' ELSE " + headMeta + " END",
		"owner=CASE WHEN step=5 THEN owner WHEN queue='' THEN '' ELSE " + headOwner + " END",
		"expires=CASE WHEN step=5 THEN expires WHEN queue='' THEN 0 ELSE " + now + "+" + headClaim + " END",
		"granted=IF(step=5,granted," + now + ")",
		"queue=CASE WHEN step=5 THEN " + without + " WHEN queue='' THEN '' ELSE " + tail + " END",
	}, ",")
	if !bury {
		return fmt.Sprintf("UPDATE %s SET %s WHERE name=%s AND (owner=%s OR LOCATE(%s,queue)>0)", b.table.quoted(), set, lit(b.key(req.Key)), me, mark)
	}
	return fmt.Sprintf("INSERT INTO %[1]s (name,token,owner,metadata,expires,granted,queue,gone,gone_until,step) VALUES (%[2]s,0,'','',0,0,'',%[3]s,%[4]s,5)"+
		" ON DUPLICATE KEY UPDATE %[5]s,%[6]s",
		b.table.quoted(), lit(b.key(req.Key)), lit(req.Owner+";"), stoneUntil, set, tombstone(req.Owner))
}

// inspect reads everything that others may know of a key.
func (b *Backend) inspect(where, more string) string {
	return fmt.Sprintf("SELECT name,owner,token,expires,granted,metadata,queue,%s FROM %s WHERE %s%s%s", now, b.table.quoted(), where, more, b.share)
}

// millis is d in milliseconds, rounded up.
func millis(d time.Duration) int64 { return int64((d + time.Millisecond - 1) / time.Millisecond) }
