-- wake ends the sleep of processes, each with a comma behind it. One that has ended, or belongs to another user, is
-- left out.
CREATE PROCEDURE `interlock_wake`(p_processes MEDIUMBLOB)
  MODIFIES SQL DATA SQL SECURITY INVOKER
BEGIN
  DECLARE id BIGINT UNSIGNED;
  DECLARE CONTINUE HANDLER FOR SQLEXCEPTION BEGIN END;
  WHILE p_processes <> '' DO
    SET id = IS_USED_LOCK(CONCAT('interlock.', SUBSTRING_INDEX(p_processes, ',', 1)));
    IF id IS NOT NULL THEN
      KILL QUERY id;
    END IF;
    SET p_processes = SUBSTRING(p_processes, LOCATE(',', p_processes) + 1);
  END WHILE;
END
