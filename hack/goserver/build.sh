#!/usr/bin/env bash
# Builds a server from its Go module into .bin, unless it is there in the version of hack/goserver/NAME/go.mod.
# Usage: build.sh NAME
set -euo pipefail
name=$1
cd "$(dirname "$0")/$name"
bin=$(cd ../../.. && pwd)/.bin/$name
export GOWORK=off
package=$(sed -n 's/^import _ "\(.*\)"$/\1/p' server.go)
module=$(go list -mod=mod -f '{{.Module.Path}}	{{.Module.Version}}' "$package")
if go version -m "$bin" 2>/dev/null | grep -q "	$module	"; then exit 0; fi
echo "setup: building $name ${module#*	} from its Go module (a minute or two)"
mkdir -p "$(dirname "$bin")"
CGO_ENABLED=0 nice -n 10 go build -trimpath -o "$bin" "$package"
