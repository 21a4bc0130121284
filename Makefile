# Everything needs Go and make alone, unless a target says otherwise.

SHELL       := bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help

VERSION     ?= $(shell git describe --tags --always --dirty 2>/dev/null || echo dev)
STATICCHECK := honnef.co/go/tools/cmd/staticcheck@v0.8.2
FUZZTIME    ?= 30s
TESTFLAGS   ?=
ARGS        ?=
REF         ?= HEAD
TARGETS     ?=

.PHONY: help build run test test-slow check fuzz bench bench-check bench-compare pgo soak docs dist clean

help: ## List the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "make %-13s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

build: ## Build ./bin/stint
	@mkdir -p bin
	go build -trimpath -ldflags '-X main.version=$(VERSION)' -o bin/stint ./cmd/stint

run: build ## Build and run the server on port 6390; ARGS='--addr …' for more
	@echo "To try it: redis-cli -p 6390 THROTTLE user:42 10 100/m    (Ctrl-C stops the server)"
	@exec ./bin/stint $(ARGS)

test: ## Run all tests; Go alone, less than 5 minutes on 2 cores
	go test -timeout 300s $(TESTFLAGS) ./...

test-slow: ## Run the long crash and load tests as well, against a server built with the race detector
	STINT_TEST_RACE=1 go test -timeout 900s -tags slow $(TESTFLAGS) ./cmd/stint/e2e ./persist

check: ## Check format, go vet, staticcheck, and run the tests with the race detector
	@unformatted=$$(gofmt -l $$(git ls-files -co --exclude-standard '*.go')); \
	if [ -n "$$unformatted" ]; then echo "not formatted by gofmt: $$unformatted"; exit 1; fi
	go vet ./...
	go vet -tags slow ./...
	go run $(STATICCHECK) -tags slow ./...
	go test -race -timeout 600s $(TESTFLAGS) $$(go list ./... | grep -v /e2e)

# When the time is over in the middle of an execution, Go's fuzzer sometimes
# calls that a failure of the target. It has found nothing then: no input is
# written, and the target is run once more.
fuzz: ## Run every fuzz target for FUZZTIME (30s) each
	@log=$$(mktemp); trap 'rm -f "$$log"' EXIT; \
	for package in $$(go list ./...); do \
	  for target in $$(go test -list '^Fuzz' $$package | grep '^Fuzz' || true); do \
	    echo "$$package $$target"; \
	    run() { go test -run '^$$' -fuzz "^$$target\$$" -fuzztime $(FUZZTIME) $(TESTFLAGS) $$package >"$$log" 2>&1; }; \
	    run || if grep -q 'context deadline exceeded' "$$log" && ! grep -q 'Failing input' "$$log"; then run; else false; fi \
	      || { cat "$$log"; exit 1; }; \
	    grep -vE 'elapsed: [0-9]+s, (gathering|execs)' "$$log"; \
	  done; \
	done

bench: ## Measure all goals side by side with redis-server (which must be installed), about 15 minutes
	go run ./bench $(ARGS)

bench-check: ## Say goal, figure and, where it is missed, the reason, of the newest result
	go run ./bench check $(ARGS)

bench-compare: ## Measure the server here beside that of another commit: REF=main
	go run ./bench compare -ref $(REF) $(ARGS)

pgo: ## Profile the server under load, for the compiler: cmd/stint/default.pgo
	go run ./bench profile $(ARGS)

soak: ## Full load for 10 minutes, to see what grows; ARGS='-d 1h' for longer
	go run ./bench soak $(ARGS)

docs: ## Write the generated documents: docs/commands.md, docs/configuration.md
	go test ./cmd/stint ./server/command -run Document -count 1 -update

# The same commit and version of Go give the same bytes.
dist: ## Build the archives of a release into ./dist; TARGETS='linux/arm64 …' for others
	go run ./cmd/stint/package/dist -version '$(VERSION)' $(if $(TARGETS),-targets '$(TARGETS)')

clean: ## Remove what the other targets made, but no state
	rm -rf bin dist
