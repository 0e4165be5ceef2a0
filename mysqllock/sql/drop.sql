-- drop removes a share holder, whose row is locked.
CREATE PROCEDURE `interlock_drop`(
  p_name VARBINARY(1225), p_place BIGINT, p_weight INT, p_slots VARBINARY(1024), p_unclaimed BOOL,
  INOUT l_shares INT, INOUT l_weight INT, INOUT l_slots VARBINARY(1024), INOUT l_pushed INT)
  MODIFIES SQL DATA SQL SECURITY INVOKER
BEGIN
  DECLARE at INT DEFAULT LOCATE('1', p_slots);
  CALL `interlock_remove`(p_name, p_place);
  SET l_shares = l_shares - 1, l_weight = l_weight - p_weight, l_pushed = l_pushed - p_unclaimed;
  WHILE at > 0 DO
    SET l_slots = INSERT(l_slots, at, 1, '0'), at = LOCATE('1', p_slots, at + 1);
  END WHILE;
  IF l_shares = 0 THEN
    SET l_weight = 0, l_slots = '', l_pushed = 0;
  END IF;
END
