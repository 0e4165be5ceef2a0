#!/bin/sh
# What tests ask of the official image's zkServer.sh: start-foreground with a configuration file, in a small JVM.
set -eu
[ "${1:-}" = start-foreground ] || { echo "usage: zkServer.sh start-foreground [config]" >&2; exit 2; }
# shellcheck disable=SC2086 # flags are words
exec java ${JVMFLAGS:--Xms32m -Xmx128m -XX:+UseSerialGC -XX:TieredStopAtLevel=1} -Dzookeeper.admin.enableServer=false \
	-cp /usr/share/java/zookeeper.jar:/etc/zookeeper/conf org.apache.zookeeper.server.quorum.QuorumPeerMain "${2:-/etc/zookeeper/conf/zoo.cfg}"
