-- plain is what changes nothing but one row: acquire for a whole key that is free; renew, keep or end for its holder while no
-- attempt waits; or renew for a share holder of such a key. p_done says whether it is that. The end of a key with share
-- holders is then too early, until rule finds the right one.
CREATE PROCEDURE `interlock_plain`(
  p_op VARBINARY(10), p_name VARBINARY(1225), p_owner VARBINARY(32), p_process VARBINARY(20), p_ttl BIGINT,
  p_metadata VARBINARY(768), p_weight INT, OUT p_done BOOL)
  MODIFIES SQL DATA SQL SECURITY INVOKER
plain: BEGIN
  DECLARE t BIGINT DEFAULT TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6));
  DECLARE share_base BIGINT DEFAULT 4611686018427387904; -- as in rule
  DECLARE s_place BIGINT;
  SET p_done = FALSE;
  IF p_op = 'acquire' THEN
    IF p_weight = 0 THEN
      UPDATE `interlock` l
      SET l.token = LAST_INSERT_ID(GREATEST(l.token + 1, t)), l.owner = p_owner, l.process = p_process,
        l.metadata = p_metadata, l.since = t, l.unclaimed = FALSE, l.expires = t + p_ttl,
        l.suspects = '', l.lapsed = FALSE, l.informed = 0
      WHERE l.name = p_name AND l.owner IS NULL AND l.shares = 0 AND l.waiters = 0 AND l.ended <= t;
      SET p_done = ROW_COUNT() = 1;
    END IF;
    IF p_done THEN
      SELECT 'granted' AS status, t AS clock, LAST_INSERT_ID() AS token, p_ttl AS lease, TRUE AS no_place;
    END IF;
    LEAVE plain;
  END IF;
  IF p_op = 'end' THEN
    UPDATE `interlock` l SET l.owner = NULL, l.expires = t
    WHERE l.name = p_name AND l.owner = p_owner AND l.expires > t AND l.waiters = 0;
  ELSE
    UPDATE `interlock` l SET l.expires = IF(p_op = 'keep', t + p_ttl, GREATEST(l.expires, t + p_ttl))
    WHERE l.name = p_name AND l.owner = p_owner AND l.expires > t AND l.waiters = 0 AND NOT l.unclaimed
      AND l.suspects = '';
  END IF;
  SET p_done = ROW_COUNT() = 1;
  IF NOT p_done AND p_op = 'renew' AND EXISTS (SELECT 1 FROM `interlock` l WHERE l.name = p_name AND l.shares > 0
    AND l.expires > t AND l.waiters = 0 AND l.pushed = 0 AND l.suspects = '' FOR UPDATE) THEN
    SELECT MIN(q.place) INTO s_place FROM `interlock_places` q
    WHERE q.name = p_name AND q.owner = p_owner AND q.place > share_base;
    IF s_place IS NOT NULL THEN
      CALL `interlock_lock`(p_name, s_place); -- a transaction of Guard may have locked it
    END IF;
    IF s_place IS NOT NULL THEN
      UPDATE `interlock_places` q SET q.ends = GREATEST(q.ends, t + p_ttl)
      WHERE q.name = p_name AND q.place = s_place AND q.ends > t;
      SET p_done = ROW_COUNT() = 1;
    END IF;
  END IF;
  IF p_done THEN
    SELECT 'held' AS status, t AS clock;
  END IF;
END
