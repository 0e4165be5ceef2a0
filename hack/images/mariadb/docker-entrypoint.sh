#!/bin/sh
# What tests ask of the official image: a server whose root may come from anywhere without a password.
set -eu
data=/var/lib/mysql
init=/var/lib/interlock-init.sql
case ${1:-} in
init)
	mkdir -p "$data" /run/mysqld
	rm -rf "${data:?}"/*
	mariadb-install-db --user=root --datadir="$data" --auth-root-authentication-method=normal --skip-test-db \
		--innodb-log-file-size=16M >/dev/null
	printf '%s\n' "CREATE USER IF NOT EXISTS root@'%';" "GRANT ALL ON *.* TO root@'%' WITH GRANT OPTION;" >"$init" # a statement a line
	;;
mariadbd)
	shift
	exec mariadbd --no-defaults --user=root --datadir="$data" --bind-address=0.0.0.0 --socket=/tmp/mysqld.sock --init-file="$init" "$@"
	;;
*) exec "$@" ;;
esac
