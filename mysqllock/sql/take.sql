-- take gives the first free permits to a holder, and returns them.
CREATE PROCEDURE `interlock_take`(
  p_capacity INT, p_weight INT, INOUT l_slots VARBINARY(1024), OUT p_slots VARBINARY(1024))
  NO SQL SQL SECURITY INVOKER
BEGIN
  DECLARE at INT DEFAULT 0;
  SET l_slots = RPAD(l_slots, GREATEST(LENGTH(l_slots), p_capacity), '0'), p_slots = REPEAT('0', p_capacity);
  WHILE p_weight > 0 DO
    SET at = LOCATE('0', l_slots, at + 1);
    SET l_slots = INSERT(l_slots, at, 1, '1'), p_slots = INSERT(p_slots, at, 1, '1'), p_weight = p_weight - 1;
  END WHILE;
END
