-- acquire asks for a key once. The first statement takes a free key as a whole; nothing else can change then.
CREATE PROCEDURE `interlock_acquire`(
  p_name VARBINARY(1225), p_owner VARBINARY(32), p_process VARBINARY(20), p_metadata VARBINARY(768),
  p_ttl BIGINT, p_weight INT, p_capacity INT, p_join BOOL)
  MODIFIES SQL DATA SQL SECURITY INVOKER
acquire: BEGIN
  DECLARE t BIGINT DEFAULT TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6));
  IF p_weight = 0 THEN
    UPDATE `interlock` l
    SET l.token = LAST_INSERT_ID(GREATEST(l.token + 1, t)), l.owner = p_owner, l.process = p_process,
      l.metadata = p_metadata, l.since = t, l.unclaimed = FALSE, l.expires = t + p_ttl,
      l.suspects = '', l.lapsed = FALSE, l.informed = 0
    WHERE l.name = p_name AND l.owner IS NULL AND l.shares = 0 AND l.waiters = 0 AND l.ended <= t;
    IF ROW_COUNT() = 1 THEN
      SELECT 'granted' AS status, t AS clock, LAST_INSERT_ID() AS token, p_ttl AS lease, TRUE AS no_place;
      LEAVE acquire;
    END IF;
  END IF;
  CALL `interlock_alone`('acquire', p_name, p_owner, p_process, p_ttl, p_join, p_metadata, p_weight, p_capacity);
END
