-- rule takes the steps of an operation, as package queuetest has them, with the row of the lock locked, in the
-- transaction of its caller. Only to create the row it ends that, and begins another.
--   p_op       acquire, renew, keep (a renewal to that end exactly), end, downgrade, break, pass, live (steps 1 to 3, 5, 6)
--   p_owner    of a break: '' ends all holders
--   p_process  the sender; '' if there is none
--   p_flag     acquire: the attempt enters the queue; end: later requests of it are refused; pass: the sender leaves
-- The variables l_ are the row of the lock, s_ the place of the attempt, f_ the holder whose lease ends first, h_ the
-- first waiter, x_ a share holder, and b_ the holder in the answer to a break. The status of the answer is granted,
-- waits, refused, held, lost or busy; wake are processes that sleep, each with a comma behind it.
--
-- MariaDB ends UPDATE and DELETE of one table, and SELECT INTO with a search, without an error if they are interrupted, by
-- KILL or a time limit, and the procedure goes on. So a search asks for MIN, other SELECT INTO read by the primary key,
-- and a row is changed by INSERT with ON DUPLICATE KEY UPDATE, and deleted by remove. A subquery of IF locks what it reads.
CREATE PROCEDURE `interlock_rule`(
  p_op VARBINARY(10), p_name VARBINARY(1225), p_owner VARBINARY(32), p_process VARBINARY(20), p_ttl BIGINT, p_flag BOOL,
  p_metadata VARBINARY(768), p_weight INT, p_capacity INT, INOUT wake MEDIUMBLOB)
  MODIFIES SQL DATA SQL SECURITY INVOKER
rule: BEGIN
  DECLARE share_base BIGINT DEFAULT 4611686018427387904; -- places of share holders are above it
  DECLARE provisional_ttl, inform_every, inform_slack, look_again BIGINT;
  DECLARE t, noted_end, lease, pass, l_token, l_since, l_expires, l_last, l_served, l_informed, l_asked_at, l_ended,
    s_place, s_ends, s_token, f_place, f_ends, f_since, h_place, h_ttl, x_place, x_after, x_upto, x_ends, x_since,
    b_token, b_ends, b_since BIGINT;
  DECLARE l_shares, l_weight, l_capacity, l_pushed, l_waiters, h_weight, h_capacity, x_weight, x_capacity INT;
  DECLARE f_weight, f_capacity, b_weight, b_capacity, n, looked INT DEFAULT 0;
  DECLARE ask BIGINT DEFAULT 0;
  DECLARE l_owner, l_watcher, l_asked, f_owner, h_owner, x_owner, b_owner, noted VARBINARY(32);
  DECLARE l_process, l_asked_process, f_process, h_process, x_process VARBINARY(20);
  DECLARE l_metadata, f_metadata, h_metadata, x_metadata, b_metadata VARBINARY(768);
  DECLARE l_slots, s_slots, f_slots, x_slots, b_slots, slots VARBINARY(1024) DEFAULT '';
  DECLARE l_suspects VARBINARY(4096);
  DECLARE l_unclaimed, l_lapsed, x_unclaimed, h_fits, h_self, h_dead BOOL;
  DECLARE s_holds, s_waits, s_asks, s_watch, f_unclaimed, removed, changed, held, more BOOL DEFAULT FALSE;
  DECLARE seen MEDIUMBLOB DEFAULT '';

  SET provisional_ttl = 3000000, inform_every = 1000000, inform_slack = 20000, look_again = 250000;
  lock_row: LOOP
    SELECT l.token, l.owner, l.process, l.metadata, l.since, l.unclaimed, l.expires, l.shares, l.weight, l.capacity,
      l.slots, l.pushed, l.waiters, l.last, l.served, l.watcher, l.suspects, l.lapsed, l.informed, l.asked,
      l.asked_process, l.asked_at, l.ended
    INTO l_token, l_owner, l_process, l_metadata, l_since, l_unclaimed, l_expires, l_shares, l_weight, l_capacity,
      l_slots, l_pushed, l_waiters, l_last, l_served, l_watcher, l_suspects, l_lapsed, l_informed, l_asked,
      l_asked_process, l_asked_at, l_ended
    FROM `interlock` l WHERE l.name = p_name FOR UPDATE;
    IF l_token IS NOT NULL THEN
      LEAVE lock_row;
    END IF;
    IF p_op <> 'acquire' AND NOT (p_op = 'end' AND p_flag) THEN
      SELECT IF(p_op = 'pass', 'held', 'lost') AS status,
        TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6)) AS clock;
      LEAVE rule;
    END IF;
    INSERT IGNORE INTO `interlock` (name) VALUES (p_name);
    IF ROW_COUNT() = 1 AND EXISTS (SELECT 1 FROM `interlock_places` q WHERE q.name = p_name) THEN
      DELETE q FROM `interlock_places` q WHERE q.name = p_name; -- of a row that was deleted by hand
    END IF;
    COMMIT AND NO CHAIN NO RELEASE;
    SET TRANSACTION ISOLATION LEVEL READ COMMITTED;
    START TRANSACTION;
  END LOOP;
  SAVEPOINT interlock;
  SET t = TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6));
  IF p_op = 'acquire' AND l_ended > t AND EXISTS (SELECT 1 FROM `interlock_places` q
    WHERE q.name = p_name AND q.place = -1 - CAST(CONV(LEFT(p_owner, 15), 16, 10) AS SIGNED) AND q.owner = p_owner
      AND q.since > t) THEN
    SELECT 'refused' AS status, t AS clock;
    LEAVE rule;
  END IF;

  -- 1. Expire. A share holder whose row a transaction of Guard has locked stays one.
  IF l_owner IS NOT NULL AND l_expires <= t THEN
    IF l_unclaimed THEN
      SET l_lapsed = TRUE,
        l_suspects = LEFT(CONCAT(l_process, ',', REPLACE(l_suspects, CONCAT(l_process, ','), '')), 4085);
    END IF;
    SET l_owner = NULL, removed = TRUE;
  END IF;
  IF l_shares > 0 AND l_expires <= t THEN
    SET x_ends = 1, x_after = 0;
    expire: LOOP
      CALL `interlock_next`(p_name, x_ends, x_after);
      IF x_after IS NULL OR x_ends > t THEN LEAVE expire; END IF;
      SET x_place = x_after;
      CALL `interlock_lock`(p_name, x_place);
      IF x_place IS NULL THEN ITERATE expire; END IF;
      SELECT q.process, q.weight, q.slots, q.unclaimed INTO x_process, x_weight, x_slots, x_unclaimed
      FROM `interlock_places` q WHERE q.name = p_name AND q.place = x_place;
      IF x_unclaimed THEN
        SET l_lapsed = TRUE,
          l_suspects = LEFT(CONCAT(x_process, ',', REPLACE(l_suspects, CONCAT(x_process, ','), '')), 4085);
      END IF;
      CALL `interlock_drop`(p_name, x_place, x_weight, x_slots, x_unclaimed, l_shares, l_weight, l_slots, l_pushed);
      SET removed = TRUE;
    END LOOP;
  END IF;
  IF l_owner IS NULL AND l_shares = 0 AND l_waiters = 0 THEN
    SET l_suspects = '', l_lapsed = FALSE, l_informed = 0;
  END IF;

  -- 2. Note.
  IF NOT removed THEN
    SET noted = l_watcher, noted_end = l_expires;
  END IF;

  -- 3. Life.
  IF p_process <> '' THEN
    IF l_owner IS NOT NULL AND l_unclaimed AND l_process = p_process THEN
      SET l_unclaimed = FALSE, l_lapsed = FALSE;
    END IF;
    IF l_pushed > 0 THEN
      SET x_upto = 9223372036854775807, n = 0;
      WHILE x_upto IS NOT NULL AND looked < LEAST(l_pushed, 16) DO -- of many, at the last
        SELECT MAX(w.place) INTO x_upto FROM (SELECT q.place FROM `interlock_places` q WHERE q.name = p_name
          AND q.place > share_base AND q.place < x_upto AND q.unclaimed ORDER BY q.place DESC LIMIT 1) w;
        SET looked = looked + 1;
        SELECT MIN(q.place) INTO x_place FROM `interlock_places` q
        WHERE q.name = p_name AND q.place = x_upto AND q.process = p_process;
        CALL `interlock_lock`(p_name, x_place);
        IF x_place IS NOT NULL THEN
          INSERT INTO `interlock_places` (name, place, owner) VALUES (p_name, x_place, '')
          ON DUPLICATE KEY UPDATE unclaimed = FALSE;
          SET n = n + 1;
        END IF;
      END WHILE;
      SET l_pushed = l_pushed - n, l_lapsed = l_lapsed AND n = 0;
    END IF;
    SET l_suspects = REPLACE(l_suspects, CONCAT(p_process, ','), '');
    IF l_asked_process = p_process THEN
      SET l_asked = NULL, l_asked_process = NULL;
    END IF;
  END IF;

  -- 4. The operation.
  IF p_owner <> '' AND NOT l_owner <=> p_owner AND (l_shares > 0 OR l_waiters > 0) THEN
    SELECT MIN(q.place) INTO s_place FROM `interlock_places` q
    WHERE q.name = p_name AND q.owner = p_owner AND q.place > 0;
    SELECT q.ends, q.slots, q.unclaimed INTO s_ends, s_slots, x_unclaimed
    FROM `interlock_places` q WHERE q.name = p_name AND q.place = s_place;
  END IF;
  SET held = l_owner <=> p_owner OR COALESCE(s_place > share_base, FALSE),
    s_waits = COALESCE(s_place < share_base, FALSE);
  IF held AND s_place IS NOT NULL AND p_op <> 'downgrade' THEN
    SET x_place = s_place;
    CALL `interlock_lock`(p_name, x_place);
    IF x_place IS NULL THEN
      ROLLBACK TO SAVEPOINT interlock; -- a transaction of Guard has locked it
      SELECT 'busy' AS status, t AS clock;
      LEAVE rule;
    END IF;
  END IF;
  IF held AND p_op IN ('acquire', 'renew', 'keep') THEN
    SET s_holds = TRUE, s_token = l_token;
    IF s_place IS NULL THEN
      SET s_ends = IF(p_op = 'keep', t + p_ttl, GREATEST(l_expires, t + p_ttl)), l_expires = s_ends;
    ELSE
      SET s_ends = IF(p_op = 'keep', t + p_ttl, GREATEST(s_ends, t + p_ttl)), s_token = s_place - share_base;
      INSERT INTO `interlock_places` (name, place, owner) VALUES (p_name, s_place, '')
      ON DUPLICATE KEY UPDATE ends = s_ends, unclaimed = FALSE;
      SET l_pushed = l_pushed - x_unclaimed;
    END IF;
  ELSEIF p_op = 'end' THEN
    IF l_owner <=> p_owner THEN
      SET l_owner = NULL;
    ELSEIF s_waits THEN
      CALL `interlock_remove`(p_name, s_place);
      SET l_waiters = l_waiters - 1;
      IF l_asked = p_owner THEN
        SET l_asked = NULL, l_asked_process = NULL;
      END IF;
    END IF;
    IF p_flag THEN
      SET l_ended = t + 300000000;
      INSERT INTO `interlock_places` (name, place, owner, since)
      VALUES (p_name, -1 - CAST(CONV(LEFT(p_owner, 15), 16, 10) AS SIGNED), p_owner, l_ended)
      ON DUPLICATE KEY UPDATE since = l_ended;
    END IF;
  ELSEIF p_op = 'downgrade' AND l_owner <=> p_owner THEN
    INSERT INTO `interlock_places` (name, place, owner, process, metadata, weight, since, ends, unclaimed)
    VALUES (p_name, share_base + l_token, p_owner, l_process, l_metadata, 1, l_since, l_expires, l_unclaimed);
    SET l_owner = NULL, l_shares = 1, l_weight = 1, l_capacity = 0, l_pushed = l_unclaimed;
  ELSEIF p_op = 'break' THEN
    IF l_owner IS NOT NULL THEN
      SET b_owner = l_owner, b_token = l_token, b_metadata = l_metadata, b_ends = l_expires, b_since = l_since;
      IF p_owner = '' OR held THEN
        SET l_owner = NULL, held = TRUE;
        CALL `interlock_event`(l_process, 'lost', p_name, b_owner, 0, '', t, 0, wake);
      END IF;
    ELSEIF l_shares > 0 THEN
      SET b_ends = 1, x_place = 0;
      CALL `interlock_next`(p_name, b_ends, x_place);
      SELECT q.owner, q.place - share_base, q.metadata, q.weight, q.capacity, q.slots, q.since
      INTO b_owner, b_token, b_metadata, b_weight, b_capacity, b_slots, b_since
      FROM `interlock_places` q WHERE q.name = p_name AND q.place = x_place;
    END IF;
  END IF;
  IF s_place > share_base AND p_op IN ('end', 'break') OR p_op = 'break' AND p_owner = '' AND l_shares > 0 THEN
    SET x_after = COALESCE(s_place - 1, share_base), x_upto = COALESCE(s_place, 9223372036854775807);
    ends: LOOP
      SELECT MIN(q.place) INTO x_place FROM `interlock_places` q
      WHERE q.name = p_name AND q.place > x_after AND q.place <= x_upto;
      IF x_place IS NULL THEN LEAVE ends; END IF;
      SET x_after = x_place;
      CALL `interlock_lock`(p_name, x_place);
      IF x_place IS NULL THEN ITERATE ends; END IF;
      SELECT q.owner, q.process, q.metadata, q.weight, q.capacity, q.slots, q.ends, q.since, q.unclaimed
      INTO x_owner, x_process, x_metadata, x_weight, x_capacity, x_slots, x_ends, x_since, x_unclaimed
      FROM `interlock_places` q WHERE q.name = p_name AND q.place = x_place;
      CALL `interlock_drop`(p_name, x_place, x_weight, x_slots, x_unclaimed, l_shares, l_weight, l_slots, l_pushed);
      IF p_op = 'break' THEN
        IF n = 0 THEN
          SET b_owner = x_owner, b_token = x_place - share_base, b_metadata = x_metadata, b_weight = x_weight,
            b_capacity = x_capacity, b_slots = x_slots, b_ends = x_ends, b_since = x_since;
        END IF;
        SET n = n + 1;
        CALL `interlock_event`(x_process, 'lost', p_name, x_owner, 0, '', t, 0, wake);
      END IF;
      SET held = TRUE;
    END LOOP;
    IF p_op = 'break' AND p_owner = '' AND l_shares > 0 THEN
      ROLLBACK TO SAVEPOINT interlock; -- of the holders one is guarded
      SELECT 'busy' AS status, t AS clock;
      LEAVE rule;
    END IF;
  END IF;

  -- 5. Admit: the waiters in their order, and behind the last one the attempt that asks.
  SET n = 0;
  admit: LOOP
    SET h_place = NULL, h_self = FALSE, h_dead = FALSE;
    IF l_waiters > 0 THEN
      SELECT MIN(q.place) INTO h_place FROM `interlock_places` q
      WHERE q.name = p_name AND q.place > l_served AND q.place < share_base;
      SELECT q.owner, q.process, q.metadata, q.weight, q.capacity, q.ttl
      INTO h_owner, h_process, h_metadata, h_weight, h_capacity, h_ttl
      FROM `interlock_places` q WHERE q.name = p_name AND q.place = h_place;
    END IF;
    IF h_place IS NULL THEN
      SET l_waiters = 0; -- if it was not, rows were deleted by hand
      IF p_op <> 'acquire' OR s_holds THEN
        LEAVE admit;
      END IF;
      SET h_self = TRUE, h_owner = p_owner, h_process = p_process, h_metadata = p_metadata, h_weight = p_weight,
        h_capacity = p_capacity, h_ttl = p_ttl;
    END IF;
    SET h_fits = l_owner IS NULL AND (l_shares = 0 OR h_weight > 0 AND (h_capacity = 0) = (l_capacity = 0)
      AND (h_capacity = 0 OR l_weight + h_weight <= h_capacity));
    IF h_self THEN
      IF NOT h_fits THEN
        LEAVE admit;
      END IF;
    ELSE
      IF n = 500 OR l_pushed >= 500 THEN -- more could not be claimed in time; each claim goes on here
        SET more = n = 500;
        LEAVE admit;
      END IF;
      IF LOCATE(CONCAT(h_process, ','), l_suspects) > 0 OR LEFT(h_process, 1) = 'l'
        AND NOT (p_op = 'acquire' AND h_process = p_process)
        AND IS_USED_LOCK(CONCAT('interlock.', h_process)) IS NULL THEN
        SET h_dead = TRUE;
      ELSEIF NOT h_fits THEN
        IF l_asked <=> h_owner AND l_asked_at + provisional_ttl <= t THEN
          SET h_dead = TRUE, l_suspects = LEFT(CONCAT(h_process, ',', l_suspects), 4085);
        ELSE
          LEAVE admit;
        END IF;
      END IF;
      CALL `interlock_remove`(p_name, h_place);
      SET l_waiters = l_waiters - 1, l_served = h_place, n = n + 1;
      IF l_asked <=> h_owner THEN
        SET l_asked = NULL, l_asked_process = NULL;
      END IF;
      IF h_dead THEN
        IF LOCATE(CONCAT(h_process, ','), seen) = 0 THEN
          SET seen = CONCAT(seen, h_process, ',');
          CALL `interlock_event`(h_process, 'removed', p_name, h_owner, 0, '', t, 0, wake);
        END IF;
        ITERATE admit;
      END IF;
    END IF;
    -- Grant.
    SET l_token = GREATEST(l_token + 1, t), slots = '', lease = h_ttl;
    IF p_op <> 'acquire' OR h_owner <> p_owner THEN
      SET lease = LEAST(h_ttl, IF(l_lapsed, 750000, provisional_ttl)),
        pass = LEAST(COALESCE(pass, lease), lease);
    END IF;
    IF h_capacity > 0 THEN
      CALL `interlock_take`(h_capacity, h_weight, l_slots, slots);
    END IF;
    SET s_asks = p_op = 'acquire' AND h_owner = p_owner;
    IF h_weight = 0 THEN
      SET l_owner = h_owner, l_process = h_process, l_metadata = h_metadata, l_since = t, l_expires = t + lease,
        l_unclaimed = NOT s_asks;
    ELSE
      INSERT INTO `interlock_places`
        (name, place, owner, process, metadata, weight, capacity, slots, since, ttl, ends, unclaimed)
      VALUES (p_name, share_base + l_token, h_owner, h_process, h_metadata, h_weight, h_capacity, slots, t, h_ttl,
        t + lease, NOT s_asks);
      SET l_shares = l_shares + 1, l_weight = l_weight + h_weight, l_capacity = h_capacity,
        l_pushed = l_pushed + (NOT s_asks);
    END IF;
    IF s_asks THEN
      SET s_holds = TRUE, s_token = l_token, s_slots = slots, s_ends = t + lease;
    ELSE
      CALL `interlock_event`(h_process, 'granted', p_name, h_owner, l_token, slots, t, lease, wake);
    END IF;
    IF h_self THEN
      SET h_place = NULL;
      LEAVE admit;
    END IF;
  END LOOP;
  IF p_op = 'acquire' AND NOT s_holds AND NOT s_waits AND p_flag THEN
    SET l_last = l_last + 1, s_place = l_last;
    INSERT INTO `interlock_places` (name, place, owner, process, metadata, weight, capacity, since, ttl)
    VALUES (p_name, s_place, p_owner, p_process, p_metadata, p_weight, p_capacity, t, p_ttl);
    SET l_waiters = l_waiters + 1, h_place = COALESCE(h_place, s_place); -- if it is the first, h_ is it already
  END IF;
  SET l_watcher = NULL;
  IF l_owner IS NOT NULL THEN
    SET f_owner = l_owner, f_process = l_process, f_place = share_base + l_token, f_metadata = l_metadata,
      f_since = l_since, f_unclaimed = l_unclaimed;
  ELSEIF l_shares > 0 THEN
    SET f_ends = 1, f_place = 0;
    CALL `interlock_next`(p_name, f_ends, f_place);
    SELECT q.owner, q.process, q.metadata, q.weight, q.capacity, q.slots, q.since, q.unclaimed
    INTO f_owner, f_process, f_metadata, f_weight, f_capacity, f_slots, f_since, f_unclaimed
    FROM `interlock_places` q WHERE q.name = p_name AND q.place = f_place;
    IF f_owner IS NULL THEN -- rows were deleted by hand
      SET l_shares = 0, l_weight = 0, l_slots = '', l_pushed = 0, l_expires = t;
    ELSE
      SET l_expires = IF(f_ends <= t, t + look_again, f_ends);
    END IF;
  ELSE
    SET l_expires = t;
  END IF;

  -- 6. Inform.
  IF f_owner IS NOT NULL AND l_waiters > 0 THEN
    IF NOT f_unclaimed OR noted IS NOT NULL THEN
      SET x_owner = h_owner, x_process = h_process;
      IF h_process = f_process THEN
        SELECT MIN(w.place) INTO x_place FROM (SELECT q.place, q.process FROM `interlock_places` q
          WHERE q.name = p_name AND q.place > l_served AND q.place < share_base ORDER BY q.place LIMIT 16) w
        WHERE w.process <> f_process;
        SELECT q.owner, q.process INTO x_owner, x_process
        FROM `interlock_places` q WHERE q.name = p_name AND q.place = x_place;
      END IF;
      SET l_watcher = IF(f_unclaimed, NULL, x_owner),
        changed = f_unclaimed OR NOT x_owner <=> noted OR l_expires < noted_end - inform_slack;
      IF changed AND NOT (p_op = 'acquire' AND x_owner = p_owner) THEN
        CALL `interlock_event`(x_process, 'ends', p_name, x_owner, 0, '', t, l_expires - t, wake);
      END IF;
    END IF;
    IF pass IS NOT NULL AND l_informed + inform_every <= t OR p_op = 'pass' AND p_flag AND f_unclaimed THEN
      SET l_informed = t;
      CALL `interlock_inform`(p_name, l_served, f_process, IF(p_op = 'acquire', p_owner, ''),
        IF(changed, x_owner, ''), t, l_expires - t, wake);
    END IF;
  END IF;

  -- The answer.
  IF p_op = 'acquire' AND NOT s_holds THEN
    SET s_watch = l_watcher <=> p_owner OR f_unclaimed;
    IF h_place IS NOT NULL AND h_process <> p_process AND l_owner IS NULL AND (l_shares = 0 OR p_weight > 0
      AND (p_capacity = 0) = (l_capacity = 0) AND (p_capacity = 0 OR l_weight + p_weight <= p_capacity)) THEN
      IF l_asked IS NULL THEN
        SET l_asked = h_owner, l_asked_process = h_process, l_asked_at = t;
        CALL `interlock_event`(h_process, 'asked', p_name, h_owner, 0, '', t, 0, wake);
      END IF;
      SET ask = l_asked_at + provisional_ttl - t;
    END IF;
  ELSEIF p_op = 'pass' THEN
    IF l_owner IS NOT NULL AND l_unclaimed THEN
      SET pass = l_expires - t;
    ELSEIF l_pushed > 0 THEN
      SELECT GREATEST(MIN(q.ends) - t, 1) INTO pass FROM `interlock_places` q
      WHERE q.name = p_name AND q.place > share_base AND q.unclaimed;
    END IF;
  END IF;
  INSERT INTO `interlock` (name) VALUES (p_name) ON DUPLICATE KEY UPDATE
    token = l_token, owner = l_owner, process = l_process, metadata = l_metadata, since = l_since,
    unclaimed = l_unclaimed, expires = l_expires, shares = l_shares, weight = l_weight, capacity = l_capacity,
    slots = l_slots, pushed = l_pushed, waiters = l_waiters, last = l_last, served = l_served, watcher = l_watcher,
    suspects = l_suspects, lapsed = l_lapsed, informed = l_informed, asked = l_asked,
    asked_process = l_asked_process, asked_at = l_asked_at, ended = l_ended;
  SET pass = IF(more, -1, COALESCE(pass, 0));
  IF p_op = 'break' THEN
    SELECT IF(held, 'held', 'lost') AS status, t AS clock, pass, b_owner AS owner, b_token AS token,
      b_metadata AS metadata, b_weight AS weight, b_capacity AS capacity, b_slots AS slots, t - b_since AS age,
      b_ends - t AS lease;
  ELSEIF p_op <> 'acquire' THEN
    SELECT IF(held OR p_op = 'pass', 'held', 'lost') AS status, t AS clock, pass;
  ELSEIF s_holds THEN
    SELECT 'granted' AS status, t AS clock, s_token AS token, s_slots AS slots, s_ends - t AS lease,
      NOT s_waits AS no_place, pass;
  ELSE
    SELECT 'waits' AS status, t AS clock, f_owner AS owner, f_place - share_base AS token, f_metadata AS metadata,
      f_weight AS weight, f_capacity AS capacity, f_slots AS slots, t - f_since AS age, l_expires - t AS lease,
      NOT s_waits AS no_place, s_watch AS watch, ask, pass;
  END IF;
END
