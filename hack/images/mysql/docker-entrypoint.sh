#!/bin/sh
# What tests ask of the official image: a server whose root may come from anywhere without a password.
set -eu
data=/var/lib/mysql
init=/var/lib/interlock-init.sql
case ${1:-} in
init)
	rm -rf "${data:?}"/*
	mkdir -p "$data" /var/lib/mysql-files /run/mysqld
	mysqld --no-defaults --user=root --datadir="$data" --initialize-insecure
	printf '%s\n' "CREATE USER IF NOT EXISTS root@'%';" "GRANT ALL ON *.* TO root@'%' WITH GRANT OPTION;" >"$init" # a statement a line
	;;
mysqld)
	shift
	exec mysqld --no-defaults --user=root --datadir="$data" --bind-address=0.0.0.0 --socket=/tmp/mysqld.sock --init-file="$init" "$@"
	;;
*) exec "$@" ;;
esac
