# Everything needs Go and make alone, unless a target says otherwise.

SHELL       := bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help

VERSION     ?= $(shell git describe --tags --always --dirty 2>/dev/null || echo dev)
STATICCHECK := honnef.co/go/tools/cmd/staticcheck@v0.8.2
FUZZTIME    ?= 30s
SEEDS       ?= 1000
TESTFLAGS   ?=
ARGS        ?=
REF         ?= HEAD
TARGETS     ?=

# Of make cluster: its folder, and its ports without their last digit.
CLUSTER_DIR  ?= stint-cluster
CLUSTER_PORT ?= 639
RAFT_PORT    ?= 739

.PHONY: help build run cluster test test-slow check fuzz bench bench-check bench-compare bench-cluster pgo soak docs dist clean

help: ## List the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "make %-13s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

build: ## Build ./bin/stint
	@mkdir -p bin
	go build -trimpath -ldflags '-X main.version=$(VERSION)' -o bin/stint ./cmd/stint

run: build ## Build and run the server on port 6390; ARGS='--addr …' for more
	@echo "To try it: redis-cli -p 6390 THROTTLE user:42 10 100/m    (Ctrl-C stops the server)"
	@exec ./bin/stint $(ARGS)

# The nodes keep what they have decided, from one start to the next.
cluster: build ## Build and run a cluster of three nodes on this machine, client ports 6391 to 6393
	@trap 'kill $$(jobs -p) 2>/dev/null; wait' EXIT; trap 'exit 0' INT TERM; \
	p=$(CLUSTER_PORT) r=127.0.0.1:$(RAFT_PORT); mkdir -p $(CLUSTER_DIR); \
	for i in 1 2 3; do \
	  ./bin/stint --addr 127.0.0.1:$$p$$i --dir $(CLUSTER_DIR)/n$$i --node-id n$$i --raft-addr $$r$$i \
	    --join $${r}1,$${r}2,$${r}3 --bootstrap-expect 3 $(ARGS) 2>$(CLUSTER_DIR)/n$$i.log & \
	done; \
	tries=0; until ./bin/stint status --addr 127.0.0.1:$${p}1 >/dev/null 2>&1; do \
	  tries=$$((tries + 1)); if [ $$tries -gt 150 ]; then cat $(CLUSTER_DIR)/*.log; exit 1; fi; sleep 0.1; \
	done; \
	./bin/stint status --addr 127.0.0.1:$${p}1; echo; \
	echo "To try it, on any node:  redis-cli -p $${p}1 THROTTLE user:42 10 100/m"; \
	echo "                         redis-cli -p $${p}3 THROTTLE user:42 10 100/m"; \
	echo "Who leads:               redis-cli -p $${p}2 RAFT LEADER"; \
	echo "To kill node 1:          pkill -9 -f 'addr 127.0.0.1:$${p}1 '"; \
	echo "Logs are in $(CLUSTER_DIR)/*.log. Ctrl-C stops all three; rm -r $(CLUSTER_DIR) forgets everything."; \
	wait

test: ## Run all tests; Go alone, less than 5 minutes on 2 cores
	go test -timeout 300s $(TESTFLAGS) ./...

test-slow: ## Run the long crash and load tests as well, against a server built with the race detector
	STINT_TEST_RACE=1 go test -timeout 900s -tags slow $(TESTFLAGS) ./cmd/stint/e2e ./persist
	STINT_TEST_RACE=1 STINT_TEST_SEEDS=$(SEEDS) go test -timeout 1800s -tags slow $(TESTFLAGS) ./cluster ./cmd/stint/e2e/cluster

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

bench-cluster: ## Measure one strict node and three beside Redis, and how long a killed leader is missed, about 10 minutes
	go run ./bench cluster $(ARGS)

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
