-- renew extends a lease, or ends it when p_ttl has passed if p_exactly is set. The first statement is for the holder
-- of a whole key for which no attempt waits.
CREATE PROCEDURE `interlock_renew`(
  p_name VARBINARY(1225), p_owner VARBINARY(32), p_process VARBINARY(20), p_ttl BIGINT, p_exactly BOOL)
  MODIFIES SQL DATA SQL SECURITY INVOKER
renew: BEGIN
  DECLARE t BIGINT DEFAULT TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6));
  UPDATE `interlock` l SET l.expires = IF(p_exactly, t + p_ttl, GREATEST(l.expires, t + p_ttl))
  WHERE l.name = p_name AND l.owner = p_owner AND l.expires > t AND l.waiters = 0 AND NOT l.unclaimed
    AND l.suspects = '';
  IF ROW_COUNT() = 1 THEN
    SELECT 'held' AS status, t AS clock;
    LEAVE renew;
  END IF;
  CALL `interlock_rule`(IF(p_exactly, 'keep', 'renew'), p_name, p_owner, p_process, p_ttl, FALSE, '', 0, 0);
END
