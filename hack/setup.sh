#!/usr/bin/env bash
# Installs what the tests need on a Debian or Ubuntu machine. Usage: hack/setup.sh [toolchain|test|all]
#
#   toolchain  make and a C compiler, which the race detector needs
#   test       the toolchain, Docker and the images that make test needs (the default)
#   all        what make test-all needs: older versions, and the servers that run as local processes. MinIO is built
#              from its Go module, in nine minutes of processor time
#
# It first says what it will install. What is there already is not changed. Images are pulled if a registry answers;
# otherwise they are built from Debian packages. The exit code is 1 if something is missing at the end, with a line for
# each. Without root it installs nothing, unless SETUP_SUDO=1 permits it to use sudo.
set -euo pipefail
cd "$(dirname "$0")/.."

tier=${1:-test}
case $tier in
toolchain | test | all) ;;
*)
	echo "setup: tier \"$tier\": want toolchain, test or all" >&2
	exit 1
	;;
esac

# One image a line: tier | flavour | official name | name when built here, if it can be | folder in hack/images, or
# go:NAME of a server in hack/goserver
images=(
	"test|redis-8|redis:8|interlock-test/redis:8|redis"
	"test|etcd-3-7||interlock-test/etcd:3.7|go:etcd"
	"test|nats-2|nats:2|interlock-test/nats:2.15|go:nats-server"
	"test|zookeeper-3-9|zookeeper:3.9|interlock-test/zookeeper:3.9|zookeeper"
	"test|postgres-18|postgres:18|interlock-test/postgres:18|postgres"
	"test|mariadb-11|mariadb:11|interlock-test/mariadb:11.8|mariadb"
	"test|mysql-9|mysql:9|interlock-test/mysql:9.7|mysql"
	"all|etcd-3-5||interlock-test/etcd:3.5|etcd"
	"all|redis-7|redis:7||"
	"all|valkey-9|valkey/valkey:9|interlock-test/valkey:9|valkey"
)
# One server a line: tier | what needs it | a program or file that its packages install | packages | an image that will do
servers=(
	"test|the tests of redislock|redis-server|redis-server|"
	"test|the tests of memcachelock|memcached|memcached|memcached:1.6"
	"all|NATS 2.9|/usr/sbin/nats-server|nats-server|"
	"all|ZooKeeper 3.8 and ensembles|/usr/share/java/zookeeper.jar|zookeeper default-jre-headless|"
	"all|MariaDB 10|/usr/sbin/mariadbd|mariadb-server-core mariadb-client-core|mariadb:10"
	"all|PostgreSQL 15|/usr/lib/postgresql/15/bin/postgres|postgresql-15|postgres:15"
	"all|PostgreSQL behind a pooler|/usr/sbin/pgbouncer|pgbouncer|"
)
base=interlock-test/base:sid
keyring=/usr/share/keyrings/debian-archive-keyring.gpg
registry_timeout=10 # seconds until a registry that has not begun to answer counts as absent
dockerd_log=/var/log/interlock-dockerd.log

missing=()
packages=()        # without which nothing runs
server_packages=() # which this system may not have
wanted=() # lines of images
work=$(mktemp -d)
policy=/usr/sbin/policy-rc.d
policy_set=0

say() { printf 'setup: %s\n' "$*"; }
lack() { missing+=("$*"); }
have() { command -v "$1" >/dev/null 2>&1; }

finish_if_missing() { # prints what is missing and ends
	local line
	if [ ${#missing[@]} -eq 0 ]; then return; fi
	for line in "${missing[@]}"; do say "MISSING $line" >&2; done
	exit 1
}

cleanup() {
	allow_services
	rm -rf --one-file-system "$work"
}
trap cleanup EXIT

# --- root and packages ---

as_root() {
	if [ "$(id -u)" = 0 ]; then "$@"; else sudo -n "$@"; fi
}

may_install() {
	have apt-get && { [ "$(id -u)" = 0 ] || { [ "${SETUP_SUDO:-}" = 1 ] && sudo -n true 2>/dev/null; }; }
}

# A package must not start its daemon: the tests start their own servers.
forbid_services() {
	if [ -e "$policy" ]; then as_root mv "$policy" "$policy.before-setup"; fi
	policy_set=1
	printf '#!/bin/sh\nexit 101\n' | as_root tee "$policy" >/dev/null
	as_root chmod 755 "$policy"
}

allow_services() {
	if [ "$policy_set" = 0 ]; then return; fi
	policy_set=0
	as_root rm -f "$policy"
	if [ -e "$policy.before-setup" ]; then as_root mv "$policy.before-setup" "$policy"; fi
}

updated=0
install_packages() { # packages...
	local ok=0 name known=()
	if [ "$updated" = 0 ]; then
		updated=1
		as_root apt-get update -qq >"$work/apt" 2>&1 || say "apt-get update failed; using the package lists of this machine"
	fi
	for name in "$@"; do
		if apt-cache show "$name" >/dev/null 2>&1; then known+=("$name"); else ok=1; fi
	done
	if [ ${#known[@]} -eq 0 ]; then return "$ok"; fi
	forbid_services
	as_root env DEBIAN_FRONTEND=noninteractive apt-get install -qq -y --no-install-recommends "${known[@]}" >"$work/apt" 2>&1 || {
		ok=$?
		tail -n 15 "$work/apt"
	}
	allow_services
	return "$ok"
}

# --- what is missing ---

c_compiler_works() {
	have gcc && gcc -E -x c - <<<'#include <stdlib.h>' >/dev/null 2>&1
}

plan_toolchain() {
	c_compiler_works || packages+=(gcc libc6-dev)
	have make || packages+=(make)
}

docker_answer() { docker version --format '{{.Server.Version}}' 2>&1; }

plan_docker() {
	local answer
	if ! have docker || ! have dockerd; then
		if have docker && docker_answer >/dev/null; then return; fi # an engine elsewhere
		packages+=(docker.io iptables)
		# The client is a package of its own since Debian 13.
		if apt-cache show docker-cli >/dev/null 2>&1; then packages+=(docker-cli); fi
		if grep -qs Y /sys/module/apparmor/parameters/enabled; then packages+=(apparmor); fi
		return
	fi
	answer=$(docker_answer) || case $answer in
	*"permission denied"*)
		lack "docker: this user may not use Docker: add it to the group docker and log in again"
		;;
	esac
}

has_server() { # file image
	[ -e "$1" ] || have "$1" || has_image "$2"
}

plan_servers() {
	local line level purpose file names image
	for line in "${servers[@]}"; do
		IFS='|' read -r level purpose file names image <<<"$line"
		if [ "$level" = all ] && [ "$tier" != all ]; then continue; fi
		# shellcheck disable=SC2206 # several names
		has_server "$file" "$image" || server_packages+=($names)
	done
}

check_servers() {
	local line level purpose file names image
	for line in "${servers[@]}"; do
		IFS='|' read -r level purpose file names image <<<"$line"
		if [ "$level" = all ] && [ "$tier" != all ]; then continue; fi
		if has_server "$file" "$image" || { [ -n "$image" ] && pull "$image"; }; then continue; fi
		lack "$purpose: install the Debian packages $names${image:+, or pull the image $image}"
	done
}

# Redis 7 is the version that Debian 12 installs.
has_binary() { # flavour
	[ "$1" = redis-7 ] && have redis-server && redis-server --version | grep -q 'v=7\.'
}

has_image() { [ -n "$1" ] && docker image inspect "$1" >/dev/null 2>&1; }

plan_images() {
	local line level flavour official built folder variable url image
	for line in "${images[@]}"; do
		IFS='|' read -r level flavour official built folder <<<"$line"
		if [ "$level" = all ] && [ "$tier" != all ]; then continue; fi
		variable=LOCK_TEST_$(printf '%s' "$flavour" | tr 'a-z-' 'A-Z_')
		url=${variable}_URL image=${variable}_IMAGE
		if [ -n "${!url:-}${!image:-}" ] || has_image "$official" || has_image "$built" || has_binary "$flavour"; then
			continue
		fi
		wanted+=("$line")
	done
}

# --- Docker ---

start_docker() { # arguments of dockerd if there is no service manager
	local pid='' i
	if [ -d /run/systemd/system ]; then
		as_root systemctl start docker || true
	else
		# shellcheck disable=SC2016 # for the inner shell
		pid=$(as_root sh -c 'log=$1; shift; setsid dockerd "$@" >"$log" 2>&1 </dev/null & echo $!' sh "$dockerd_log" "$@")
	fi
	for ((i = 0; i < 150; i++)); do
		if docker_answer >/dev/null; then return 0; fi
		if [ -n "$pid" ] && [ ! -d "/proc/$pid" ]; then return 1; fi
		sleep 0.2
	done
	return 1
}

setup_docker() {
	if docker_answer >/dev/null; then return 0; fi
	if ! [ "$(id -u)" = 0 ] && ! may_install; then
		lack "docker: the engine does not run: start it"
		return 1
	fi
	say "starting the Docker engine"
	if start_docker; then return 0; fi
	# In a container the kernel may refuse overlay mounts; vfs is slow and always works.
	if [ ! -d /run/systemd/system ] && start_docker --storage-driver=vfs; then return 0; fi
	lack "docker: the engine does not start; see $dockerd_log or journalctl -u docker"
	return 1
}

# --- images ---

pull() { # image
	local out="$work/pull-${1//[\/:]/-}" pid i
	: >"$out" # the first grep may run before the shell of docker pull has opened the file
	docker pull "$1" >"$out" 2>&1 &
	pid=$!
	for ((i = 0; i < registry_timeout * 10; i++)); do
		if grep -q 'Pulling from' "$out" || ! kill -0 "$pid" 2>/dev/null; then break; fi
		sleep 0.1
	done
	if ! grep -q 'Pulling from' "$out"; then kill "$pid" 2>/dev/null || true; fi
	wait "$pid"
}

# Prints the mirrors of Debian that this machine uses, then the general one.
debian_mirrors() {
	{
		# shellcheck disable=SC2016 # apt-get expands these
		apt-get indextargets --format '$(ORIGIN)|$(LABEL)|$(REPO_URI)' 'Created-By: Packages' 2>/dev/null |
			sed -n 's,^Debian|Debian|\(https\?://.*[^/]\)/*$,\1,p'
		echo http://deb.debian.org/debian
	} | awk '!seen[$0]++'
}

apt_proxy() {
	local proxy=
	eval "$(apt-config shell proxy Acquire::http::Proxy 2>/dev/null)"
	case $proxy in DIRECT | direct) proxy= ;; esac
	printf '%s' "${proxy:-${http_proxy:-}}"
}

build_base() {
	local mirror proxy
	if has_image "$base"; then return 0; fi
	proxy=$(apt_proxy)
	while read -r mirror; do
		if as_root env ${proxy:+http_proxy="$proxy"} mmdebstrap --variant=minbase --quiet --skip=cleanup/apt/lists --keyring="$keyring" \
			--aptopt='Acquire::Check-Valid-Until "false"' sid "$work/base.tar" "$mirror" >"$work/base.log" 2>&1 </dev/null; then
			docker import "$work/base.tar" "$base" >/dev/null && rm -f "$work/base.tar" && return 0
		fi
		say "building $base from $mirror failed: $(tail -n 1 "$work/base.log")"
	done < <(debian_mirrors)
	return 1
}

# The servers that run as local processes. Two of them become images, too.
build_go_servers() {
	local server names=(etcd nats-server versitygw)
	if [ "$tier" = all ]; then names+=(minio); fi
	for server in "${names[@]}"; do
		{ hack/goserver/build.sh "$server" || touch "$work/unbuilt-$server"; } &
	done
	wait
}

build_go_image() { # name server
	hack/goserver/build.sh "$2" && tar -C .bin -c --transform 's,^,usr/bin/,' "$2" | docker import - "$1"
}

build_image() { # name folder
	local proxy
	if [[ $2 = go:* ]]; then
		build_go_image "$1" "${2#go:}"
		return
	fi
	if [ "$base_built" = no ]; then return 1; fi
	proxy=$(apt_proxy)
	# The network of the host reaches the mirror or proxy that this machine uses.
	DOCKER_BUILDKIT=0 docker build --network host --build-arg "BASE=$base" ${proxy:+--build-arg "http_proxy=$proxy"} -t "$1" "hack/images/$2"
}

get_image() { # flavour official built folder
	local begin=$SECONDS
	if has_binary "$1"; then return 0; fi # installed meanwhile
	if [ -n "$2" ] && [ "$registry" = present ] && pull "$2"; then
		say "$1: pulled $2 ($((SECONDS - begin)) s)"
	elif [ -n "$3" ] && build_image "$3" "$4" >"$work/build-$1" 2>&1; then
		say "$1: built $3 ($((SECONDS - begin)) s)"
	else
		if [ -e "$work/build-$1" ]; then tail -n 15 "$work/build-$1"; fi
		return 1
	fi
}

setup_images() {
	local line level flavour official built folder pids=() i
	registry=absent base_built=no
	for line in "${wanted[@]}"; do
		IFS='|' read -r level flavour official built folder <<<"$line"
		if [ -n "$official" ]; then break; fi
	done
	if [ -n "$official" ] && pull "$official"; then registry=present; fi
	# With a registry only the images without an official name are built; those of Go modules need no base.
	if { [ "$registry" = absent ] || [[ ${wanted[*]} == *"etcd-3-5"* ]]; } && have mmdebstrap && may_install && build_base; then base_built=yes; fi
	for line in "${wanted[@]}"; do
		IFS='|' read -r level flavour official built folder <<<"$line"
		get_image "$flavour" "$official" "$built" "$folder" &
		pids+=($!)
	done
	for i in "${!wanted[@]}"; do
		IFS='|' read -r level flavour official built folder <<<"${wanted[i]}"
		wait "${pids[i]}" || lack "$flavour: ${official:-its image} could not be pulled${built:+ and $built could not be built}"
	done
}

# --- the run ---

have go || lack "go: install Go from https://go.dev/dl/; any release since 1.21 fetches the one that go.work names"
plan_toolchain
if [ "$tier" != toolchain ]; then
	plan_docker
	plan_servers
fi
finish_if_missing # before anything is installed or built
if [ "$tier" != toolchain ]; then
	if have dockerd && ! setup_docker; then finish_if_missing; fi
	plan_images
	# Only images that cannot be pulled need it.
	if [ ${#wanted[@]} -gt 0 ] && ! have mmdebstrap && may_install; then packages+=(mmdebstrap debian-archive-keyring); fi
fi

to_install=(${packages[@]+"${packages[@]}"} ${server_packages[@]+"${server_packages[@]}"})
if [ ${#to_install[@]} -gt 0 ]; then
	say "to install: the Debian packages ${to_install[*]} (about a minute)"
fi
if [ ${#wanted[@]} -gt 0 ]; then
	say "to get: ${#wanted[@]} images of servers, pulled in about a minute or built from Debian packages in about three"
fi
if [ ${#to_install[@]} -gt 0 ] && ! may_install; then
	lack "${to_install[*]}: install these packages, or run hack/setup.sh as root or with SETUP_SUDO=1"
	finish_if_missing
fi
if [ "$tier" != toolchain ]; then
	build_go_servers & # needs Go only
	go_servers=$!
fi
if [ ${#packages[@]} -gt 0 ] && ! install_packages "${packages[@]}"; then
	lack "${packages[*]}: could not be installed"
fi
if [ ${#server_packages[@]} -gt 0 ]; then install_packages "${server_packages[@]}" || true; fi # check_servers looks
if [ "$tier" != toolchain ]; then
	if setup_docker && [ ${#wanted[@]} -gt 0 ]; then setup_images; fi
	check_servers
	wait "$go_servers"
	for server in "$work"/unbuilt-*; do
		if [ -e "$server" ]; then lack "${server##*/unbuilt-}: could not be built from its Go module"; fi
	done
fi
finish_if_missing
say "everything that \"$tier\" needs is there"
