#!/usr/bin/env bash
# Builds a server from its Go module into .bin, unless it is there in the version of hack/goserver/NAME/go.mod. Of several
# calls at the same time one builds it and the others wait.
# Usage: build.sh NAME
set -euo pipefail
name=$1
cd "$(dirname "$0")/$name"
bin=$(cd ../../.. && pwd)/.bin/$name
export GOWORK=off
exec 9<server.go
flock 9
package=$(sed -n 's/^import _ "\(.*\)"$/\1/p' server.go) # none: server.go is the program
module=$(sed -n 's/^require \(.*\) \(v.*\)$/\1	\2/p' go.mod)
if [ "$bin" -nt server.go ] && go version -m "$bin" 2>/dev/null | grep -q "	$module	"; then exit 0; fi
echo "setup: building $name ${module#*	} from its Go module (a minute or two)"
mkdir -p "$(dirname "$bin")"
CGO_ENABLED=0 nice -n 10 go build -trimpath -gcflags=all=-dwarf=false -o "$bin" "${package:-.}"
