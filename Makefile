# Every target runs over all modules of go.work. `make help` lists the targets.
SHELL := /bin/bash
.DEFAULT_GOAL := help

MODULES ?= $(shell go list -m -f '{{.Dir}}')
PATTERNS = $(addsuffix /...,$(MODULES))
BIN := $(CURDIR)/.bin
FUZZTIME ?= 10s

# testcontainers' own cleaner is one more image to pull; the tests remove their containers themselves.
export TESTCONTAINERS_RYUK_DISABLED ?= true
export TESTCONTAINERS_HOST_OVERRIDE ?= 127.0.0.1

.PHONY: help
help: ## list the targets
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/\1	\2/p' $(MAKEFILE_LIST) | expand -t 14

.PHONY: setup
setup: ## install what make test needs and this machine lacks; SETUP=all: what make test-all needs
	@hack/setup.sh $(or $(SETUP),test)

.PHONY: check
check: ## tier 1, no server: format, vet, lint and unit tests of what differs from the upstream branch or BASE
	@go run ./hack/runtests check

.PHONY: test
test: ## tier 2: every backend in its current version on a real server, with the race detector; sets up what is missing
	@hack/setup.sh toolchain && go run ./hack/runtests test

.PHONY: test-all
test-all: ## tier 3: all versions and topologies, faults, benchmarks once; ONLY="etcd mysql": of some backends
	@hack/setup.sh toolchain && go run ./hack/runtests all $(ONLY)

SOAK ?= 10m
ENOUGH ?= 0

.PHONY: soak
soak: ## faults on all backends for SOAK (10m) or until each has ENOUGH acquisitions under them (0: no end), and docs/faults.csv from that
	hack/setup.sh all
	LOCK_TEST_ALL=1 go test -count=1 -timeout 0 -run '^TestSoak$$' -v ./integration/faults -faults.soak $(SOAK) -faults.enough $(ENOUGH) -faults.table $(CURDIR)/docs/faults.csv

.PHONY: matrix
matrix: ## write the servers of the last make test-all into docs/matrix.csv and docs/matrix.md
	go run ./integration/matrix $(BIN)/reports docs

.PHONY: matrix-check
matrix-check: ## compare docs/matrix.csv with the reports of the last make test or make test-all
	go run ./integration/matrix -check $(BIN)/reports docs

.PHONY: images
images: ## write docs/images from hack/pictures and from the figures of docs/performance.md
	go run ./hack/pictures

.PHONY: site
site: ## write the documentation as HTML pages with a search to .bin/site
	go run ./hack/site $(BIN)/site
	@echo "open $(BIN)/site/index.html"

.PHONY: vet
vet: ## go vet
	@go vet $(PATTERNS)

.PHONY: oldest-go
oldest-go: ## go vet of each module with the Go release that its go.mod states, which is downloaded
	@status=0; for m in $(MODULES); do v=$$(sed -n 's/^go //p' $$m/go.mod); echo "go$$v $$m"; \
		(cd $$m && GOTOOLCHAIN=go$$v GOWORK=off go vet ./...) || status=1; done; exit $$status

.PHONY: lint
lint: $(BIN)/golangci-lint ## the checks of .golangci.yml, and that each go.mod is tidy without go.work, as a user gets it
	@status=0; for m in $(MODULES); do (cd $$m && GOWORK=off go mod tidy -diff) || status=1; done; \
	$(BIN)/golangci-lint run $(PATTERNS) || status=1; \
	if command -v shellcheck >/dev/null; then shellcheck hack/*.sh hack/goserver/*.sh .ci/run || status=1; fi; exit $$status

.PHONY: vuln
vuln: $(BIN)/govulncheck ## known vulnerabilities in what we call, with the newest patch of Go (needs the database online, or a module proxy that serves it)
	@GOVULNCHECK=$(BIN)/govulncheck go test -count=1 ./hack/vulndb # does it find what is there?
	@db=$$(go run ./hack/vulndb $(BIN)/vulndb) || exit 1; \
	minor=$$(sed -n 's/^go \([0-9]*\.[0-9]*\).*/\1/p' go.work); newest=$$(GOWORK=off go list -m -f '{{.Version}}' "go@$$minor") || exit 1; \
	status=0; for m in $(MODULES); do \
		echo "govulncheck $$m with go$$newest"; (cd $$m && GOTOOLCHAIN=go$$newest GOWORK=off $(BIN)/govulncheck -db "$$db" ./...) || status=1; \
	done; exit $$status

.PHONY: fuzz
fuzz: ## each fuzz target for FUZZTIME (10s)
	@status=0; for m in $(MODULES); do for p in $$(cd $$m && go list -f '{{.Dir}}' ./...); do \
		for f in $$(cd $$p && grep -hos '^func Fuzz[A-Za-z0-9_]*' *_test.go | cut -c6-); do \
			echo "fuzz $$p $$f"; (cd $$p && go test -run '^$$' -fuzz "^$$f$$" -fuzztime $(FUZZTIME) .) || status=1; \
	done; done; done; exit $$status

.PHONY: mutate
mutate: ## take each safety step away in turn and write docs/safety-steps.md, which tests notice
	hack/setup.sh all
	go run ./hack/mutate

.PHONY: api
api: $(BIN)/apidiff ## compare the API of each published module with that of the last release
	@APIDIFF=$(BIN)/apidiff go run ./hack/release api

.PHONY: release
release: $(BIN)/apidiff ## commit and tag VERSION (v0.1.0) of all published modules after a green make test; pushes nothing
	@APIDIFF=$(BIN)/apidiff go run ./hack/release $(VERSION)

.PHONY: lockctl
lockctl: ## build .bin/lockctl and .bin/lockbench without debug information and unused methods
	@mkdir -p $(BIN)
	go build -trimpath -tags grpcnotrace -ldflags '-s -w' -o $(BIN)/ ./cmd/lockctl ./cmd/lockbench

.PHONY: bench
bench: ## benchmarks, without tests
	LOCK_TEST_ALL=1 go test -run '^$$' -bench . -benchmem $(PATTERNS)

MEASURE ?= Peers|Shares|Growth
SERVICE ?= .

.PHONY: performance
performance: ## measure and write docs/performance*.md and their pictures (hours; leave the machine alone meanwhile); MEASURE=Shares: one page; MEASURE=Peers SERVICE=Redis: one service
	hack/setup.sh all
	LOCK_TEST_ALL=1 LOCK_TEST_REQUIRE=all go test -run '^$$' -bench '^Benchmark($(MEASURE))$$/$(SERVICE)' -benchtime 1x -timeout 4h ./bench -documents $(CURDIR)/docs
	go run ./hack/pictures

.PHONY: cover
cover: ## coverage of every package by all tests, in .bin/cover.html
	hack/setup.sh all
	@mkdir -p $(BIN)
	LOCK_TEST_ALL=1 go test -coverpkg=$$(go list $(PATTERNS) | paste -sd,) -coverprofile=$(BIN)/cover.out $(PATTERNS)
	go tool cover -html=$(BIN)/cover.out -o $(BIN)/cover.html
	@go tool cover -func=$(BIN)/cover.out | tail -n 1

# The tools have a module of their own, so that their requirements are in no other go.sum. They are built as the servers
# of hack/goserver and the releases in integration/release are, so that these share what is compiled.
TOOL = cd hack/tools && GOWORK=off CGO_ENABLED=0 go build -trimpath -gcflags=all=-dwarf=false -o $@
$(BIN)/golangci-lint: hack/tools/go.mod
	$(TOOL) github.com/golangci/golangci-lint/v2/cmd/golangci-lint

$(BIN)/apidiff: hack/tools/go.mod
	$(TOOL) golang.org/x/exp/cmd/apidiff

$(BIN)/govulncheck: hack/tools/go.mod
	$(TOOL) golang.org/x/vuln/cmd/govulncheck
