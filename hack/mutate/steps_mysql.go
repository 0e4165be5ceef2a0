package main

const (
	mysqlIn   = "integration/mysql"
	mysqlRule = "TestDifferential/^mariadb-11$"
	mysqlSQL  = "mysqllock/sql/"
)

var mysqlSteps = []Step{
	{"MySQL: a held key is not granted by the first statement", mysqlSQL + "acquire.sql",
		"AND l.owner IS NULL AND l.shares = 0", "AND l.shares = 0", mysqlIn, mysqlRule},
	{"MySQL: nor one that shares hold", mysqlSQL + "acquire.sql",
		"AND l.owner IS NULL AND l.shares = 0", "AND l.owner IS NULL", mysqlIn, mysqlRule},
	{"MySQL: nor one with waiters", mysqlSQL + "acquire.sql",
		"AND l.waiters = 0 AND l.ended <= t", "AND l.ended <= t", mysqlIn, mysqlRule},
	{"MySQL: nor to an attempt that was abandoned", mysqlSQL + "acquire.sql",
		"AND l.waiters = 0 AND l.ended <= t", "AND l.waiters = 0", mysqlIn, "TestLateRequest/^mariadb-11$"},
	{"MySQL: an expired grant is not renewed", mysqlSQL + "renew.sql",
		"l.owner = p_owner AND l.expires > t", "l.owner = p_owner", mysqlIn, mysqlRule},
	{"MySQL: nor that of another attempt", mysqlSQL + "renew.sql",
		"l.owner = p_owner AND l.expires > t", "l.expires > t", mysqlIn, mysqlRule},
	{"MySQL: a release ends the grant of its attempt only", mysqlSQL + "end.sql",
		"l.owner = p_owner AND l.expires > t", "l.expires > t", mysqlIn, mysqlRule},
	{"MySQL: a release with waiters passes the key on", mysqlSQL + "end.sql",
		"AND l.expires > t AND l.waiters = 0", "AND l.expires > t", mysqlIn, mysqlRule},
	{"MySQL: a lease that has not ended is not removed", mysqlSQL + "rule.sql",
		"IF l_owner IS NOT NULL AND l_expires <= t THEN", "IF l_owner IS NOT NULL THEN", mysqlIn, mysqlRule},
	{"MySQL: nor that of a share holder", mysqlSQL + "rule.sql",
		"q.ends >= x_ends AND q.ends <= t", "q.ends > 0", mysqlIn, mysqlRule},
	{"MySQL: the key is granted only if it is free or the share fits", mysqlSQL + "rule.sql",
		"SET h_fits = l_owner IS NULL AND (", "SET h_fits = (", mysqlIn, mysqlRule},
	{"MySQL: permits are limited", mysqlSQL + "rule.sql",
		"l_weight + h_weight <= h_capacity", "TRUE", mysqlIn, mysqlRule},
	{"MySQL: a token rises", mysqlSQL + "rule.sql",
		"SET l_token = GREATEST(l_token + 1, t)", "SET l_token = t", mysqlIn, mysqlRule},
	{"MySQL: a grant that was pushed is provisional", mysqlSQL + "rule.sql",
		"LEAST(h_ttl, GREATEST(provisional_ttl >> (2 * l_lapses), 250000))", "h_ttl", mysqlIn, mysqlRule},
	{"MySQL: an unclaimed grant makes its process suspect", mysqlSQL + "rule.sql",
		"IF LOCATE(CONCAT(h_process, ','), l_suspects) > 0 OR LEFT", "IF LEFT", mysqlIn, mysqlRule},
	{"MySQL: a waiter that cannot be reached is removed", mysqlSQL + "rule.sql",
		"IS_USED_LOCK(CONCAT('interlock.', h_process)) IS NULL THEN", "FALSE THEN", mysqlIn, mysqlRule},
	{"MySQL: an abandoned attempt is refused", mysqlSQL + "rule.sql",
		"IF p_op = 'acquire' AND l_ended > t AND", "IF FALSE AND", mysqlIn, mysqlRule},
	{"MySQL: a guarded reader stays", mysqlSQL + "rule.sql",
		"SELECT 'guarded' AS status, t AS clock;\n      LEAVE rule;\n    END IF;\n  END IF;\n  IF held AND p_op IN",
		"SET x_place = s_place;\n    END IF;\n  END IF;\n  IF held AND p_op IN", mysqlIn, "TestGuardedReader/^mariadb-11$"},
	{"MySQL: what is left of a lock whose row was deleted is removed", mysqlSQL + "rule.sql",
		"IF ROW_COUNT() = 1 THEN -- if", "IF FALSE THEN -- if", mysqlIn, "TestRowsDeleted/^mariadb-11$"},
	{"MySQL: a sweep deletes no lock that is held", "mysqllock/sweep.go",
		`"owner IS NULL AND shares = 0 AND waiters = 0"`, `"TRUE"`, mysqlIn, "TestSweepDead/^mariadb-11$"},
	{"MySQL: a statement that may have been executed stays so", "mysqllock/request.go",
		"if err != nil && errors.Is(earlier, backend.ErrUncertain)", "if false && errors.Is(earlier, backend.ErrUncertain)",
		"mysqllock", "TestStillUncertain"},
}
