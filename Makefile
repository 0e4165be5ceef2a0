# Every target runs over all modules of go.work. `make help` lists the targets.
SHELL := /bin/bash
.DEFAULT_GOAL := help

MODULES = $(shell go list -m -f '{{.Dir}}')
PATTERNS = $(addsuffix /...,$(MODULES))
BIN := $(CURDIR)/.bin
REPORT := $(CURDIR)/.bin/servers.txt
REPORTS := $(CURDIR)/.bin/reports
FUZZTIME ?= 10s
AT_ONCE ?= $(shell echo $$(( ($$(getconf _NPROCESSORS_ONLN) + 1) / 2 )))

# testcontainers' own cleaner is one more image to pull; the tests clean up after themselves.
export TESTCONTAINERS_RYUK_DISABLED ?= true
export TESTCONTAINERS_HOST_OVERRIDE ?= 127.0.0.1

.PHONY: help
help: ## list the targets
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/\1	\2/p' $(MAKEFILE_LIST) | expand -t 12

.PHONY: setup
setup: ## install what the tests need and this machine lacks
	@hack/setup.sh

.PHONY: test
test: setup ## test every module against real servers, with the race detector and in random order
	@mkdir -p $(BIN) && rm -rf $(REPORT) $(REPORTS)
	@# everything is compiled before the first test: a compiler would take the time of those that judge time
	go build $(PATTERNS)
	go test -race -run '^$$' $(PATTERNS) >/dev/null
	go test -count=1 -run '^TestClockWorker$$' ./integration/provision
	go test -count=1 ./docs/model # one goroutine: the race detector would only make it slow
	@# half as many packages at a time as there are processors, since servers want some too
	@# the faults come last and alone: what they judge takes time, and others would take it
	LOCK_TEST_REPORT=$(REPORT) LOCK_TEST_REPORTS=$(REPORTS) go test -race -shuffle=on -count=1 -timeout 30m -p $(AT_ONCE) \
		$$(go list $(PATTERNS) | grep -v '/integration/faults$$'); status=$$?; \
	go test -race -count=1 -timeout 20m ./integration/faults || status=1; \
	if [ -s $(REPORT) ]; then echo; awk '!seen[$$1, $$2]++' $(REPORT); fi; exit $$status

SOAK ?= 10m
ENOUGH ?= 0

.PHONY: soak
soak: setup ## faults on all backends for SOAK (10m) or until each has ENOUGH acquisitions under them (0: no end), and docs/faults.md from that
	go test -count=1 -timeout 0 -run '^TestSoak$$' -v ./integration/faults -faults.soak $(SOAK) -faults.enough $(ENOUGH) -faults.table $(CURDIR)/docs/faults.md

.PHONY: matrix
matrix: ## write docs/matrix.md from the reports of the last make test
	go run ./integration/matrix $(REPORTS) docs/matrix.md

.PHONY: matrix-check
matrix-check: ## is docs/matrix.md what the last make test has shown?
	go run ./integration/matrix -check $(REPORTS) docs/matrix.md

.PHONY: vet
vet: ## go vet
	go vet $(PATTERNS)

.PHONY: lint
lint: $(BIN)/golangci-lint ## the checks of .golangci.yml, and that each go.mod is tidy, module by module as a user gets it
	@status=0; for m in $(MODULES); do \
		echo "lint $$m"; \
		(cd $$m && export GOWORK=off && go mod tidy -diff && $(BIN)/golangci-lint run --allow-parallel-runners --config $(CURDIR)/.golangci.yml ./...) || status=1; \
	done; \
	if command -v shellcheck >/dev/null; then shellcheck hack/*.sh .ci/run || status=1; fi; exit $$status

.PHONY: vuln
vuln: $(BIN)/govulncheck ## known vulnerabilities in what we call (needs the database online, or a module proxy that serves it)
	@GOVULNCHECK=$(BIN)/govulncheck go test -count=1 ./hack/vulndb # does it find what is there?
	@db=$$(go run ./hack/vulndb $(BIN)/vulndb) || exit 1; status=0; for m in $(MODULES); do \
		echo "govulncheck $$m"; (cd $$m && GOWORK=off $(BIN)/govulncheck -db "$$db" ./...) || status=1; \
	done; exit $$status

.PHONY: fuzz
fuzz: ## each fuzz target for FUZZTIME (10s)
	@status=0; for m in $(MODULES); do for p in $$(cd $$m && go list -f '{{.Dir}}' ./...); do \
		for f in $$(cd $$p && grep -hos '^func Fuzz[A-Za-z0-9_]*' *_test.go | cut -c6-); do \
			echo "fuzz $$p $$f"; (cd $$p && go test -run '^$$' -fuzz "^$$f$$" -fuzztime $(FUZZTIME) .) || status=1; \
	done; done; done; exit $$status

.PHONY: mutate
mutate: ## take each safety step away in turn and write docs/safety-steps.md, which tests notice
	go run ./hack/mutate

.PHONY: bench
bench: ## benchmarks, without tests
	go test -run '^$$' -bench . -benchmem $(PATTERNS)

.PHONY: bench-once
bench-once: setup ## each benchmark once and in short, to see that it works
	go test -race -short -run '^$$' -bench . -benchtime 1x -p 1 -timeout 20m \
		$$(grep -rl --include='*_test.go' '^func Benchmark' . | xargs -n 1 dirname | sort -u)

.PHONY: performance
performance: setup ## measure beside the peers and write docs/performance.md (about half an hour; leave the machine alone meanwhile)
	LOCK_TEST_REQUIRE=all go test -run '^$$' -bench Peers -benchtime 1x -timeout 60m ./bench -document $(CURDIR)/docs/performance.md

.PHONY: cover
cover: setup ## coverage of every package by all tests, in .bin/cover.html
	@mkdir -p $(BIN)
	go test -coverpkg=$$(go list $(PATTERNS) | paste -sd,) -coverprofile=$(BIN)/cover.out $(PATTERNS)
	go tool cover -html=$(BIN)/cover.out -o $(BIN)/cover.html
	@go tool cover -func=$(BIN)/cover.out | tail -n 1

# The tools have a module of their own, so that their requirements reach nobody else's go.sum.
$(BIN)/golangci-lint: hack/tools/go.mod
	cd hack/tools && GOWORK=off go build -o $@ github.com/golangci/golangci-lint/v2/cmd/golangci-lint

$(BIN)/govulncheck: hack/tools/go.mod
	cd hack/tools && GOWORK=off go build -o $@ golang.org/x/vuln/cmd/govulncheck
