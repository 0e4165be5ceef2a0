-- plain is renew, keep or end for the holder of a whole key for which no attempt waits. p_done says whether it is that.
CREATE PROCEDURE `interlock_plain`(
  p_op VARBINARY(10), p_name VARBINARY(1225), p_owner VARBINARY(32), p_ttl BIGINT, OUT p_done BOOL)
  MODIFIES SQL DATA SQL SECURITY INVOKER
BEGIN
  DECLARE t BIGINT DEFAULT TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6));
  IF p_op = 'end' THEN
    UPDATE `interlock` l SET l.owner = NULL, l.expires = t
    WHERE l.name = p_name AND l.owner = p_owner AND l.expires > t AND l.waiters = 0;
  ELSE
    UPDATE `interlock` l SET l.expires = IF(p_op = 'keep', t + p_ttl, GREATEST(l.expires, t + p_ttl))
    WHERE l.name = p_name AND l.owner = p_owner AND l.expires > t AND l.waiters = 0 AND NOT l.unclaimed
      AND l.suspects = '';
  END IF;
  SET p_done = ROW_COUNT() = 1;
  IF p_done THEN
    SELECT 'held' AS status, t AS clock;
  END IF;
END
