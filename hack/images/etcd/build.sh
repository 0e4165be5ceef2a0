#!/usr/bin/env bash
# Builds an etcd server from its Go module into .bin/etcd, where one of that version is neither there nor on
# the PATH. There is no Debian package of it, and no image without a registry.
set -euo pipefail
cd "$(dirname "$0")/module"
bin=$(cd ../../../.. && pwd)/.bin/etcd
version=$(sed -n 's,.*go.etcd.io/etcd/server/v3 v\([0-9]*\.[0-9]*\)\..*,\1,p' go.mod | head -n 1)
for have in etcd "$bin"; do
	if "$have" --version 2>/dev/null | grep -q "^etcd Version: ${version//./\\.}\."; then exit 0; fi
done
echo "setup: building etcd $version from its Go module (a minute or two)"
mkdir -p "$(dirname "$bin")"
CGO_ENABLED=0 GOWORK=off nice -n 10 go build -trimpath -o "$bin" go.etcd.io/etcd/server/v3
