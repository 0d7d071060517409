# The two commands of a fresh machine are `make demo` and `make test`; `make help` lists the others.
# RELAYS=n DISPATCHERS=n PAYMENT_APIS=n, APIPAY_DEV_DIR and APIPAY_PORT_OFFSET are taken from here or from the environment.

SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help

MAINS    := ./migrations/cmd/migrate ./pkg/devstack/cmd/devstack $(patsubst %/main.go,./%,$(wildcard services/*/cmd/*/main.go))
DEVSTACK := bin/devstack
TOOLS    := $(CURDIR)/.tools/bin

GOLANGCI_LINT_VERSION := v2.14.0
GOLANGCI_LINT         := $(TOOLS)/golangci-lint-$(GOLANGCI_LINT_VERSION)

FUZZTIME             ?= 20s
SCHEMATHESIS_SECONDS ?= 90

# Package patterns of every module of the workspace, and its folders.
modules     = $(shell go list -m -f '{{.Dir}}')
# Modules outside the workspace, since their libraries would raise the versions that the services are built with.
apart       = deploy charts charts/telemetry
go_files    = $(shell git ls-files -co --exclude-standard '*.go' | grep -v -e '\.pb\.go$$' -e '\.gen\.go$$')

.PHONY: help
help: ## list the targets
	@sed -n 's/^\([a-z0-9-]*\):.*## \(.*\)/  make \1\t\2/p' $(MAKEFILE_LIST) | expand -t 24

.PHONY: build
build: ## build every program into bin/
	@[ -e $(DEVSTACK) ] || echo "building the programs (the first time takes a few minutes)"
	@go build -o bin/ $(MAINS)

.PHONY: up
up: build ## start the local stack (DETACH=1: return when it is ready)
	@$(DEVSTACK) up $(if $(filter-out 0 false no,$(DETACH)),--detach)

.PHONY: down
down: $(DEVSTACK) ## stop the local stack; its data stays
	@$(DEVSTACK) down

.PHONY: status
status: $(DEVSTACK) ## what runs in the local stack
	@$(DEVSTACK) status

.PHONY: demo
demo: build ## show the main job: a payment becomes a signed webhook
	@$(DEVSTACK) demo

# `down` and `status` must work beside a running stack, so they build only what is not there.
$(DEVSTACK):
	@go build -o $@ ./pkg/devstack/cmd/devstack

.PHONY: test
test: build ## run every module's tests on one Postgres and one broker
	@$(DEVSTACK) test-env -- go test -timeout 10m $(TESTFLAGS) work

.PHONY: test-pg15
test-pg15: build ## run the tests of the schema and of pkg on Postgres 15
	@bin=/usr/lib/postgresql/15/bin; \
	if [ ! -x $$bin/postgres ]; then \
		if [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then \
			apt-get update -q && RUNLEVEL=1 DEBIAN_FRONTEND=noninteractive apt-get install -qy --no-install-recommends postgresql-15; \
		else \
			echo "make test-pg15: no Postgres 15 in $$bin; install postgresql-15" >&2; exit 1; \
		fi; \
	fi; \
	APIPAY_POSTGRES_BIN=$$bin $(DEVSTACK) test-env -- go test -timeout 10m $(TESTFLAGS) ./migrations/... ./pkg/...

.PHONY: test-verifiers
test-verifiers: build ## hold real deliveries against the webhook verifiers of Stripe and Standard Webhooks in Go, Node and Python
	@services/webhook-dispatcher/verifiers/run.sh

.PHONY: fuzz
fuzz: build ## fuzz what reads from strangers, FUZZTIME (default 20s) each
	@$(DEVSTACK) test-env -- bash -euo pipefail -c '\
	for target in pkg/httpapi:FuzzDecodeStrict pkg/httpapi:FuzzInteger pkg/httpapi:FuzzCursor pkg/httpapi:FuzzParseIdempotencyKey \
		services/payment-api/internal/payments:FuzzPost; do \
		echo "== $$target"; \
		go test -run "^$$" -fuzz "^$${target#*:}$$" -fuzztime $(FUZZTIME) "./$${target%%:*}"; \
	done'

.PHONY: schemathesis
schemathesis: build ## hold a running payment-api against its OpenAPI document for SCHEMATHESIS_SECONDS (default 90)
	@services/payment-api/schemathesis/run.sh $(SCHEMATHESIS_SECONDS)

.PHONY: docs-check
docs-check: ## look at /docs and /errors in Chromium; the screenshots are in .dev/screenshots
	@services/payment-api/internal/apidoc/browser/run.sh $(CURDIR)/.dev/screenshots

.PHONY: test-kafka
test-kafka: relay-programs ## run what needs a broker against a real Apache Kafka (fetched through Maven)
	@missing=; command -v java >/dev/null && command -v javac >/dev/null || missing=openjdk-17-jdk-headless; \
	command -v mvn >/dev/null || missing="$$missing maven"; \
	if [ -n "$$missing" ]; then \
		if [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then \
			apt-get update -q && DEBIAN_FRONTEND=noninteractive apt-get install -qy --no-install-recommends $$missing; \
		else \
			echo "make test-kafka: install$$missing" >&2; exit 1; \
		fi; \
	fi
	@TEST_KAFKA_APACHE=1 $(DEVSTACK) test-env --apache-kafka -- go test -timeout 10m $(TESTFLAGS) \
		./pkg/devstack/kafka ./services/outbox-relay/... ./services/webhook-dispatcher/...
	@bin/relay-chaos -apache -replicas 1 -rounds 20 -faults relay-killed
	@bin/relay-chaos -apache -replicas 4 -rounds 20 -short -faults relay-killed,broker-killed,broker-frozen,answers-lost,oversized-record

# CHAOSFLAGS: bin/relay-chaos -h; without -short everything lasts as long as in the acceptance cases.
.PHONY: chaos
chaos: chaos-payments chaos-relay ## faults under load, over real processes (short form)

.PHONY: chaos-relay
chaos-relay: relay-programs
	@bin/relay-chaos -short -rounds 20 $(CHAOSFLAGS)

# Every fail point x every operation, with SIGKILL, and with SIGSTOP beyond the lease.
.PHONY: chaos-payments
chaos-payments: build
	@$(DEVSTACK) test-env -- go test -count=1 -timeout 10m -tags failpoints -run 'CrashMatrix|PauseMatrix' $(TESTFLAGS) \
		./services/payment-api/internal/payments

.PHONY: bench
bench: bench-payments bench-relay bench-dispatcher bench-admin ## measure, print tables with targets, keep them in docs/benchmarks

.PHONY: bench-payments
bench-payments: build
	@mkdir -p docs/benchmarks
	@BENCH_OUT=$(CURDIR)/docs/benchmarks $(DEVSTACK) test-env -- go test -count=1 -timeout 20m -tags bench -run TestSpeed -v \
		./services/payment-api/bench

# BENCHFLAGS: bin/relay-bench -h; 10 M retained rows and an outage of 10 minutes are for `make soak`.
.PHONY: bench-relay
bench-relay: relay-programs
	@mkdir -p docs/benchmarks
	@bin/relay-bench -rows drain,ratio,live,latency,idle-first,million,snapshot,insert-cost,idle,failover -report docs/benchmarks/relay-latest.md $(BENCHFLAGS)
	@bin/relay-bench -scale 0.1 -rows retained,outage -report docs/benchmarks/relay-latest.md $(BENCHFLAGS)
	@bin/relay-bench -apache -report docs/benchmarks/relay-latest.md $(BENCHFLAGS)

# The whole chain, then a claim beside CLAIM_ROWS rows of which a tenth is due, then a recovery of a million. BENCH_SCALE=0.1
# makes the queues shorter.
CLAIM_ROWS ?= 2000000

.PHONY: bench-dispatcher
bench-dispatcher: build
	@mkdir -p docs/benchmarks
	@BENCH_OUT=$(CURDIR)/docs/benchmarks BENCH_BIN=$(CURDIR)/bin $(DEVSTACK) test-env -- go test -count=1 -timeout 40m -tags bench -run TestSpeed -v \
		./services/webhook-dispatcher/bench
	@CLAIM_ROWS=$(CLAIM_ROWS) $(DEVSTACK) test-env -- bash -euo pipefail -c '\
		go test -timeout 40m -run "^$$" -bench BenchmarkClaim -benchtime 1000x ./services/webhook-dispatcher/internal/dispatch; \
		go test -timeout 40m -run "^$$" -bench BenchmarkRecover -benchtime 1000000x ./services/webhook-dispatcher/internal/dispatch' \
		| tee docs/benchmarks/webhook-dispatcher-database.txt

# The pages of admin-api beside ROWS deliveries; the acceptance case is 10000000, which takes 15 GB and half an hour to load.
.PHONY: bench-admin
bench-admin: ROWS ?= 1000000
bench-admin: build
	@mkdir -p docs/benchmarks
	@ROWS=$(ROWS) BENCH_OUT=$(CURDIR)/docs/benchmarks $(DEVSTACK) test-env -- go test -count=1 -timeout 3h -tags bench -run TestSpeed -v \
		./services/admin-api/bench

# SOAK_ROUNDS multiplies the rounds of the races: 10 makes 200 of parallel refunds, 2,000 of parallel confirms.
SOAK_ROUNDS ?= 10

.PHONY: soak
soak: soak-payments soak-relay soak-dispatcher ## hours of the same, by hand; SOAK_ROUNDS times what `make test` does

.PHONY: soak-payments
soak-payments: build
	@SOAK_ROUNDS=$(SOAK_ROUNDS) $(DEVSTACK) test-env -- go test -count=1 -timeout 4h -v \
		-run 'TestConfirm|TestRefund|TestPgbouncer|TestVanishingClients' ./services/payment-api/internal/...

# Everything at the length of the acceptance cases, the outage of 10 minutes and 10 M rows among it.
.PHONY: soak-relay
soak-relay: relay-programs
	@mkdir -p docs/chaos
	@bin/relay-chaos -rounds 200 -limit 2h -report docs/chaos/relay-soak.md
	@bin/relay-chaos -rounds 20 -replicas 4 -limit 2h -report docs/chaos/relay-soak.md
	@bin/relay-chaos -apache -rounds 20 -limit 2h -report docs/chaos/relay-soak.md
	@bin/relay-bench -rows retained,outage -report docs/chaos/relay-soak.md
	@bin/relay-bench -scale 10 -rows million -report docs/chaos/relay-soak.md

.PHONY: soak-dispatcher
soak-dispatcher: build
	@SOAK_SECONDS=600 OUTAGE_SECONDS=180 REBALANCE_DELIVERIES=100000 KILLED_EVENTS=2000 KILLS=20 $(DEVSTACK) test-env -- go test -count=1 -timeout 1h -v \
		-run 'TestSoak|TestConsume_Rebalances|TestRun_Killed' ./services/webhook-dispatcher/internal/dispatch

# VERSION goes into the programs and the labels; GO_IMAGE and BASE_IMAGE may pin the images by digest.
VERSION  ?= $(shell git describe --tags --always --dirty 2>/dev/null || echo dev)
IMAGES   := migrate payment-api admin-api outbox-relay webhook-dispatcher
engine    = $(firstword $(foreach e,docker podman,$(if $(shell command -v $(e) >/dev/null && $(e) info >/dev/null 2>&1 && echo yes),$(e))))

.PHONY: images
images: ## build the image of each service and of migrate, with docker or podman
	@engine=$(engine); \
	if [ -z "$$engine" ]; then \
		echo "make images: no container engine answers (docker, podman); make test-deploy performs the same steps without one" >&2; exit 1; \
	fi; \
	for name in $(IMAGES); do \
		file=services/$$name/Dockerfile; [ $$name != migrate ] || file=migrations/Dockerfile; \
		DOCKER_BUILDKIT=1 $$engine build --file $$file --tag apipay/$$name:$(VERSION) --tag apipay/$$name:dev \
			--build-arg VERSION=$(VERSION) --build-arg REVISION=$$(git rev-parse HEAD) \
			$(if $(GO_IMAGE),--build-arg GO_IMAGE=$(GO_IMAGE)) $(if $(BASE_IMAGE),--build-arg BASE_IMAGE=$(BASE_IMAGE)) .; \
	done; \
	echo "images: $(IMAGES), each as apipay/NAME:$(VERSION) and as :dev, which docker-compose.yml takes, built with $$engine"

.PHONY: compose-secrets
compose-secrets: ## make the secrets that docker-compose.yml mounts, once
	@deploy/compose-secrets.sh

.PHONY: test-deploy
test-deploy: build ## hold Dockerfiles and docker-compose.yml against what an engine would do, without one
	@if ! command -v psql >/dev/null; then \
		if [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then \
			apt-get update -q && DEBIAN_FRONTEND=noninteractive apt-get install -qy --no-install-recommends postgresql-client; \
		else \
			echo "make test-deploy: install psql" >&2; exit 1; \
		fi; \
	fi
	@cd deploy && GOWORK=off go test -timeout 20m $(TESTFLAGS) ./...

.PHONY: charts
charts: build ## lint, render and check the Helm charts, and package them into bin/charts
	@cd charts && GOWORK=off $(CURDIR)/$(DEVSTACK) test-env -- go test -timeout 20m $(TESTFLAGS) ./...
	@cd charts/telemetry && GOWORK=off go test -timeout 10m $(TESTFLAGS) ./...
	@cd charts && GOWORK=off go run ./cmd/package . $(CURDIR)/bin/charts

# docs/rolling-restart.md has what they print for 600 and 180 seconds. An outage lasts longer than the minute after which a silent
# loop counts as dead.
ROLLING_SECONDS ?= 180
OUTAGE_SECONDS  ?= 65

.PHONY: rolling
rolling: build ## restart every replica every 30 s under load, for ROLLING_SECONDS (default 180)
	@ROLLING_SECONDS=$(ROLLING_SECONDS) go test -count=1 -v -timeout 1h -run '^TestRolling$$' ./pkg/devstack/e2e

.PHONY: outages
outages: build ## take Postgres and the broker away under load, each for OUTAGE_SECONDS (default 65)
	@OUTAGE_SECONDS=$(OUTAGE_SECONDS) go test -count=1 -v -timeout 1h -run '^TestOutage$$' ./pkg/devstack/e2e

.PHONY: skew
skew: build ## run this release beside the next one: schema, replicas, events, refusals
	@SKEW=1 go test -count=1 -v -timeout 20m -run '^TestSkew' ./pkg/devstack/e2e

.PHONY: relay-programs
relay-programs: build
	@go build -o bin/ ./pkg/devstack/cmd/relay-chaos ./pkg/devstack/cmd/relay-bench
	@go build -tags failpoints -o bin/failpoints/ ./services/outbox-relay/cmd/outbox-relay

.PHONY: test-console
test-console: build ## try the support console in Chromium over a stack of its own
	@services/admin-api/e2e/run.sh

.PHONY: check
check: check-format check-generated check-modules vet lint ## format, lint, vet, generated code, go.mod of every module

.PHONY: check-format
check-format:
	@unformatted=$$(gofmt -l $(go_files)); \
	if [ -n "$$unformatted" ]; then echo "not gofmt'd (make fmt mends it):" >&2; echo "$$unformatted" >&2; exit 1; fi

.PHONY: check-generated
check-generated:
	@proto/generate.sh --check
	@before=$$(git ls-files -co --exclude-standard '*.gen.go' | sort | xargs -r sha256sum); \
	go generate work; \
	after=$$(git ls-files -co --exclude-standard '*.gen.go' | sort | xargs -r sha256sum); \
	if [ "$$before" != "$$after" ]; then \
		echo "generated code is stale; it has been made again, commit it:" >&2; \
		diff <(echo "$$before") <(echo "$$after") >&2; exit 1; \
	fi

.PHONY: check-modules
check-modules:
	@failed=; \
	for dir in $(modules) $(apart); do \
		(cd $$dir && GOWORK=off go mod tidy -diff && GOWORK=off go build ./...) || failed="$$failed $$dir"; \
	done; \
	if [ -n "$$failed" ]; then echo "not tidy, or not building alone (make tidy):$$failed" >&2; exit 1; fi

.PHONY: vet
vet:
	@go vet work
	@for dir in $(apart); do (cd $$dir && GOWORK=off go vet ./...); done

.PHONY: lint
lint: $(GOLANGCI_LINT)
	@$(GOLANGCI_LINT) run --allow-parallel-runners $(addsuffix /...,$(modules))
	@for dir in $(apart); do (cd $$dir && GOWORK=off $(GOLANGCI_LINT) run --allow-parallel-runners ./...); done

.PHONY: fmt
fmt: $(GOLANGCI_LINT) ## format every Go file
	@$(GOLANGCI_LINT) fmt $(modules)

.PHONY: generate
generate: ## make the generated code again
	@proto/generate.sh
	@go generate work
	@cd charts && GOWORK=off go generate ./...

.PHONY: tidy
tidy: ## bring every go.mod up to date
	@go work sync
	@for dir in $(modules) $(apart); do (cd $$dir && GOWORK=off go mod tidy); done

.PHONY: clean
clean: $(DEVSTACK) ## stop the local stack and remove its data and the programs
	@$(DEVSTACK) clean
	@rm -rf bin coverage

$(GOLANGCI_LINT):
	@echo "installing golangci-lint $(GOLANGCI_LINT_VERSION) (once)"
	@GOWORK=off GOFLAGS= GOBIN=$(TOOLS) go install github.com/golangci/golangci-lint/v2/cmd/golangci-lint@$(GOLANGCI_LINT_VERSION)
	@mv $(TOOLS)/golangci-lint $@

.PHONY: test-sdks
test-sdks: build ## run the conformance vectors in all five SDKs, and each end to end against a stack of its own
	@pkg/sdk/java/install.sh && pkg/sdk/php/install.sh
	@$(DEVSTACK) with-stack -- pkg/sdk/test-sdks.sh
