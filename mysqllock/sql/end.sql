-- end removes a holder or a waiter; if p_late is set, later requests of the attempt are refused. The first statement
-- is for the holder of a whole key for which no attempt waits.
CREATE PROCEDURE `interlock_end`(
  p_name VARBINARY(1225), p_owner VARBINARY(32), p_process VARBINARY(20), p_late BOOL)
  MODIFIES SQL DATA SQL SECURITY INVOKER
ends: BEGIN
  DECLARE t BIGINT DEFAULT TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6));
  IF NOT p_late THEN
    UPDATE `interlock` l SET l.owner = NULL, l.expires = t
    WHERE l.name = p_name AND l.owner = p_owner AND l.expires > t AND l.waiters = 0;
    IF ROW_COUNT() = 1 THEN
      SELECT 'held' AS status, t AS clock;
      LEAVE ends;
    END IF;
  END IF;
  CALL `interlock_rule`('end', p_name, p_owner, p_process, 0, p_late, '', 0, 0);
END
