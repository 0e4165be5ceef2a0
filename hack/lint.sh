#!/usr/bin/env bash
# Checks one module as its users get it, without go.work: is go.mod tidy, and what does golangci-lint say? The output is
# printed at the end, so that several modules can be checked at the same time. Usage: hack/lint.sh FOLDER
set -euo pipefail
root=$(cd "$(dirname "$0")/.." && pwd)
cd "$1"
export GOWORK=off
status=0
output=$({ go mod tidy -diff && "$root/.bin/golangci-lint" run --allow-parallel-runners --config "$root/.golangci.yml" ./...; } 2>&1) || status=1
printf 'lint %s\n%s\n' "$1" "$(grep -v '^go: downloading ' <<<"$output" || true)"
exit $status
