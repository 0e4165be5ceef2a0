#!/usr/bin/env bash
# Makes a bare Debian or Ubuntu machine able to run every test of this repository: compiler, make, a
# redis-server binary, a Docker engine, and the images of the servers. Images are pulled where a registry
# answers, otherwise built from Debian packages. What is there already is left alone; a second run only looks.
set -euo pipefail
cd "$(dirname "$0")/.."

# One line per image: flavour | official name | name when built here | folder in hack/images | Debian suite | binary=major that serves instead
images=(
	"redis-7|redis:7|interlock-test/redis:7|redis|bookworm|redis-server=7"
	"redis-8|redis:8|interlock-test/redis:8|redis|sid|"
	"valkey-9|valkey/valkey:9|interlock-test/valkey:9|valkey|sid|"
	"etcd-3-5||interlock-test/etcd:3.5|etcd|sid|"
	"zookeeper-3-9|zookeeper:3.9|interlock-test/zookeeper:3.9|zookeeper|sid|"
	"postgres-18|postgres:18|interlock-test/postgres:18|postgres|sid|"
	"mariadb-11|mariadb:11|interlock-test/mariadb:11.8|mariadb|sid|"
	"mysql-9|mysql:9|interlock-test/mysql:9.7|mysql|sid|"
)
registry_patience=10 # seconds until a registry that has not begun to answer counts as absent

changed=0
missing=()
work=
policy=/usr/sbin/policy-rc.d
policy_set=0

say() { printf 'setup: %s\n' "$*"; }
lack() { missing+=("$*"); }
have() { command -v "$1" >/dev/null 2>&1; }

as_root() {
	if [ "$(id -u)" = 0 ]; then "$@"; else sudo "$@"; fi
}

may_install() {
	have apt-get && { [ "$(id -u)" = 0 ] || sudo -n true 2>/dev/null; }
}

cleanup() {
	allow_services
	if [ -n "$work" ]; then as_root rm -rf --one-file-system "$work"; fi
}
trap cleanup EXIT

# A package that brings a daemon must not start it: the tests start their own, and 6379 may be somebody's.
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
	if ! may_install; then return 1; fi
	if [ "$updated" = 0 ]; then
		updated=1
		say "updating the package lists"
		as_root apt-get update -qq || say "apt-get update reported errors; going on with the lists there are"
	fi
	say "installing $*"
	changed=1
	forbid_services
	local ok=0 out
	out=$(mktemp)
	as_root env DEBIAN_FRONTEND=noninteractive apt-get install -qq -y --no-install-recommends "$@" >"$out" 2>&1 || ok=$?
	allow_services
	if [ "$ok" != 0 ]; then tail -n 15 "$out"; fi
	rm -f "$out"
	return "$ok"
}

c_compiler_works() {
	have gcc && printf '#include <stdlib.h>\n' | gcc -E -x c - >/dev/null 2>&1
}

setup_tools() {
	local need=()
	have go || lack "go: install Go from https://go.dev/dl/ (any release since 1.21 fetches the one go.work names)"
	c_compiler_works || need+=(gcc libc6-dev)
	have make || need+=(make)
	if [ ${#need[@]} -gt 0 ] && ! install_packages "${need[@]}"; then
		lack "${need[*]}: install with this system's package manager (the race detector needs a C compiler)"
	fi
}

setup_redis_binary() {
	if have redis-server; then return; fi
	if ! install_packages redis-server; then
		lack "redis-server: no binary on PATH; tests of Redis Cluster and Sentinel need one"
	elif [ -d /run/systemd/system ]; then
		as_root systemctl disable --quiet redis-server # not at the next boot either
	fi
}

setup_pgbouncer() {
	if have pgbouncer || [ -x /usr/sbin/pgbouncer ]; then return; fi
	if ! install_packages pgbouncer; then
		lack "pgbouncer: not installed; tests of PostgreSQL behind a pooler need the Debian package"
	elif [ -d /run/systemd/system ]; then
		as_root systemctl disable --quiet pgbouncer # not at the next boot either
	fi
}

docker_answers() { docker version --format '{{.Server.Version}}' >/dev/null 2>&1; }

start_docker() { # arguments of dockerd, where there is no service manager to start it
	local log=/var/log/interlock-dockerd.log pid='' i
	changed=1
	if [ -d /run/systemd/system ]; then
		say "starting Docker"
		as_root systemctl start docker || true
	else
		say "starting dockerd${*:+ $*} in the background, its log is $log"
		# shellcheck disable=SC2016 # for the inner shell
		pid=$(as_root sh -c 'log=$1; shift; setsid dockerd "$@" >"$log" 2>&1 </dev/null & echo $!' sh "$log" "$@")
	fi
	for ((i = 0; i < 150; i++)); do
		if docker_answers; then return 0; fi
		if [ -n "$pid" ] && [ ! -d "/proc/$pid" ]; then return 1; fi
		sleep 0.2
	done
	return 1
}

setup_docker() {
	if have docker && docker_answers; then return 0; fi
	if have docker && docker version 2>&1 | grep -q 'permission denied'; then
		lack "docker: this user may not use it; add it to the group docker"
		return 1
	fi
	if ! have docker || ! have dockerd; then
		if ! may_install; then
			lack "docker: not installed, and nothing here to install it with"
			return 1
		fi
		local packages=(docker.io iptables)
		# The client became a package of its own in Debian 13.
		if apt-cache show docker-cli >/dev/null 2>&1; then packages+=(docker-cli); fi
		if grep -qs Y /sys/module/apparmor/parameters/enabled; then packages+=(apparmor); fi
		if ! install_packages "${packages[@]}"; then
			lack "docker: the package docker.io could not be installed"
			return 1
		fi
	fi
	if docker_answers || start_docker; then return 0; fi
	# In a container of its own the kernel may refuse overlay mounts; vfs is slow and always works.
	if [ ! -d /run/systemd/system ] && start_docker --storage-driver=vfs; then return 0; fi
	lack "docker: the engine does not start; see its log (/var/log/interlock-dockerd.log or journalctl -u docker)"
	return 1
}

has_image() { docker image inspect "$1" >/dev/null 2>&1; }

registry=unknown
pull() { # image
	if [ "$registry" = absent ]; then return 1; fi
	local out pid i
	out=$(mktemp)
	say "pulling $1"
	docker pull "$1" >"$out" 2>&1 &
	pid=$!
	for ((i = 0; i < registry_patience * 10; i++)); do
		if grep -q 'Pulling from' "$out" || ! kill -0 "$pid" 2>/dev/null; then break; fi
		sleep 0.1
	done
	if ! grep -q 'Pulling from' "$out"; then kill "$pid" 2>/dev/null || true; fi
	if wait "$pid"; then
		rm -f "$out"
		changed=1
		return 0
	fi
	say "not pulled: $(tail -n 1 "$out")"
	if ! grep -q 'Pulling from' "$out"; then registry=absent; fi
	rm -f "$out"
	return 1
}

# The mirror this machine uses for Debian itself, if it is a Debian; then the generic one.
debian_mirrors() {
	{
		# shellcheck disable=SC2016 # apt-get expands these
		apt-get indextargets --format '$(ORIGIN)|$(LABEL)|$(REPO_URI)' 'Created-By: Packages' 2>/dev/null |
			sed -n 's,^Debian|Debian|\(https\?://.*[^/]\)/*$,\1,p'
		printf '\n' # debootstrap's own default
	} | awk '!seen[$0]++'
}

apt_proxy() {
	local proxy=
	eval "$(apt-config shell proxy Acquire::http::Proxy 2>/dev/null)"
	case $proxy in DIRECT | direct) proxy= ;; esac
	printf '%s' "${proxy:-${http_proxy:-}}"
}

build_base() { # suite
	local suite=$1 tag=interlock-test/base:$1 mirror proxy
	if has_image "$tag"; then return 0; fi
	local need=()
	have debootstrap || need+=(debootstrap)
	[ -e /usr/share/keyrings/debian-archive-keyring.gpg ] || need+=(debian-archive-keyring)
	if [ ${#need[@]} -gt 0 ] && ! install_packages "${need[@]}"; then return 1; fi
	proxy=$(apt_proxy)
	work=$(mktemp -d /var/tmp/interlock-setup.XXXXXX)
	while read -r mirror; do
		say "building the base image $tag from ${mirror:-the default mirror} (a minute or two)"
		if as_root env ${proxy:+http_proxy="$proxy"} debootstrap --variant=minbase "$suite" "$work/root" ${mirror:+"$mirror"} \
			>"$work/log" 2>&1 </dev/null; then
			break
		fi
		say "debootstrap failed: $(tail -n 1 "$work/log")"
		as_root rm -rf --one-file-system "$work/root"
	done < <(debian_mirrors)
	if [ ! -d "$work/root" ]; then return 1; fi
	as_root tar -C "$work/root" -c --exclude='./usr/share/doc/*' --exclude='./usr/share/man/*' \
		--exclude='./usr/share/locale/*' --exclude='./var/cache/apt/*' --exclude='./var/lib/apt/lists/*' \
		--exclude='./var/log/*' --exclude='./dev/*' . | docker import - "$tag" >/dev/null
	as_root rm -rf --one-file-system "$work"
	work=
	changed=1
}

build_image() { # tag folder suite
	local tag=$1 folder=hack/images/$2 suite=$3 proxy out
	build_base "$suite" || return 1
	say "building $tag from Debian packages"
	proxy=$(apt_proxy)
	out=$(mktemp)
	# The network of the host, so that a mirror or proxy it reaches is reached from the build too.
	local args=(--network host --build-arg "BASE=interlock-test/base:$suite" -t "$tag" "$folder")
	if [ -n "$proxy" ]; then args=(--build-arg "http_proxy=$proxy" "${args[@]}"); fi
	if ! DOCKER_BUILDKIT=0 docker build "${args[@]}" >"$out" 2>&1; then
		tail -n 15 "$out"
		rm -f "$out"
		return 1
	fi
	rm -f "$out"
	changed=1
}

binary_serves() { # binary=major
	local binary=${1%=*} major=${1#*=}
	[ -n "$binary" ] && have "$binary" && "$binary" --version 2>/dev/null | grep -Eq "v=$major\."
}

setup_image() { # one line of images
	local flavour official local_name folder suite binary variable
	IFS='|' read -r flavour official local_name folder suite binary <<<"$1"
	variable=LOCK_TEST_$(printf '%s' "$flavour" | tr 'a-z-' 'A-Z_')
	local url=${variable}_URL image=${variable}_IMAGE
	if [ -n "${!url:-}${!image:-}" ] || binary_serves "$binary"; then return; fi
	if [ "$docker" = no ]; then
		lack "$flavour: no Docker to run it in; its tests will not run (or set ${variable}_URL)"
		return
	fi
	if { [ -n "$official" ] && has_image "$official"; } || has_image "$local_name"; then return; fi
	if { [ -n "$official" ] && pull "$official"; } || { may_install && build_image "$local_name" "$folder" "$suite"; }; then return; fi
	lack "$flavour: ${official:-no image} could not be pulled and $local_name could not be built; its tests will not run (or set ${variable}_URL)"
}

setup_tools
setup_redis_binary
[ -e /usr/share/java/zookeeper.jar ] || install_packages zookeeper default-jre-headless || lack "zookeeper: not installed; tests of ZooKeeper 3.8 and of ensembles need the Debian package"
[ -x /usr/sbin/mariadbd ] || install_packages mariadb-server-core mariadb-client-core || lack "mariadbd: not installed; tests of MariaDB 10 need the Debian packages mariadb-server-core and mariadb-client-core"
hack/images/etcd/build.sh || lack "etcd: no binary on PATH and none could be built; tests of etcd 3.7 and of etcd clusters need one"
[ -x /usr/lib/postgresql/15/bin/postgres ] || install_packages postgresql-15 || lack "postgresql-15: not installed; tests of PostgreSQL 15 need the Debian package, or the image postgres:15"
setup_pgbouncer
docker=yes
setup_docker || docker=no
for line in "${images[@]}"; do setup_image "$line"; done

for line in ${missing[@]+"${missing[@]}"}; do say "MISSING $line"; done
if [ ${#missing[@]} -gt 0 ]; then
	# Without these nothing builds; without the rest the tests concerned say why they do not run.
	if have go && have make; then exit 0; fi
	exit 1
fi
if [ "$changed" = 0 ]; then say "everything is there, nothing to do"; else say "done"; fi
