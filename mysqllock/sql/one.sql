-- one is an acquire, a renewal, or an end. p_flag is as in rule; an end with it is one that refuses later requests.
CREATE PROCEDURE `interlock_one`(
  p_op VARBINARY(10), p_name VARBINARY(1225), p_owner VARBINARY(32), p_process VARBINARY(20), p_ttl BIGINT, p_flag BOOL,
  p_metadata VARBINARY(768), p_weight INT, p_capacity INT)
  MODIFIES SQL DATA SQL SECURITY INVOKER
BEGIN
  DECLARE done BOOL DEFAULT FALSE;
  IF p_op = 'acquire' OR NOT p_flag THEN
    CALL `interlock_plain`(p_op, p_name, p_owner, p_process, p_ttl, p_metadata, p_weight, done);
  END IF;
  IF NOT done THEN
    CALL `interlock_alone`(p_op, p_name, p_owner, p_process, p_ttl, p_flag, p_metadata, p_weight, p_capacity);
  END IF;
END
