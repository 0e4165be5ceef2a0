-- one is a renewal, or an end; if p_late is set, later requests of the attempt are refused.
CREATE PROCEDURE `interlock_one`(
  p_op VARBINARY(10), p_name VARBINARY(1225), p_owner VARBINARY(32), p_process VARBINARY(20), p_ttl BIGINT, p_late BOOL)
  MODIFIES SQL DATA SQL SECURITY INVOKER
BEGIN
  DECLARE done BOOL DEFAULT FALSE;
  IF NOT p_late THEN
    CALL `interlock_plain`(p_op, p_name, p_owner, p_ttl, done);
  END IF;
  IF NOT done THEN
    CALL `interlock_alone`(p_op, p_name, p_owner, p_process, p_ttl, p_late, '', 0, 0);
  END IF;
END
