-- remove deletes a row of places. If it is not deleted, the statement was interrupted: see rule.
CREATE PROCEDURE `interlock_remove`(p_name VARBINARY(1225), p_place BIGINT)
  MODIFIES SQL DATA SQL SECURITY INVOKER
BEGIN
  DELETE FROM `interlock_places` WHERE name = p_name AND place = p_place;
  IF ROW_COUNT() <> 1 THEN
    SIGNAL SQLSTATE '70100' SET MYSQL_ERRNO = 1317, MESSAGE_TEXT = 'a DELETE was interrupted';
  END IF;
END
