# `make` alone prints this help. Every target runs without privileges.
SHELL    := /bin/bash
GO       ?= go
FUZZTIME ?= 20s
BENCH    ?= .
VERSION  := $(shell git describe --tags --always --dirty --abbrev=12 2>/dev/null || echo unknown)
COMMIT   := $(shell git rev-parse HEAD 2>/dev/null)
LDFLAGS  := -s -w -X main.version=$(VERSION) -X main.commit=$(COMMIT)
TOOL     := $(GO) tool -modfile=internal/tools/go.mod

.PHONY: help
help: ## print this help
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-11s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

.PHONY: demo
demo: build ## run a fleet on this machine: 3 global nodes, 3 regions, 24 simulated workers; Ctrl-C stops it
	./bin/spillway demo

.PHONY: build
build: ## build the one static binary, bin/spillway
	CGO_ENABLED=0 $(GO) build -trimpath -ldflags '$(LDFLAGS)' -o bin/spillway ./cmd/spillway

.PHONY: image-root
image-root: build ## write the root filesystem of the container image to bin/image: the binary, CA roots, writable folders
	rm -rf bin/image && mkdir -p bin/image/etc/ssl/certs bin/image/run bin/image/tmp bin/image/var/lib/spillway
	@test -s /etc/ssl/certs/ca-certificates.crt || { echo "no CA roots here: apt-get install ca-certificates"; exit 1; }
	cp /etc/ssl/certs/ca-certificates.crt bin/image/etc/ssl/certs/
	cp bin/spillway bin/image/spillway
	chmod 1777 bin/image/tmp bin/image/run bin/image/var/lib/spillway

.PHONY: check-image
check-image: image-root ## run the README's stand-alone zone in the image's root filesystem as its user (needs root, no container engine)
	deploy/docker/check.sh bin/image

.PHONY: release
release: ## build archives, deb, rpm, the container image, SBOMs and checksums into bin/release; RELEASE="-targets linux/amd64 -kinds package"
	$(GO) run ./deploy/release $(RELEASE)

.PHONY: test-reproducible
test-reproducible: ## build the release of HEAD in two folders, once with an empty build cache, and compare the sums; RELEASE="-targets linux/amd64"
	GO='$(GO)' deploy/release/compare.sh $(RELEASE)

.PHONY: test-packages
test-packages: ## install, upgrade, remove and purge the deb and the rpm in a Debian root (needs root, debootstrap and Debian's archive)
	GO='$(GO)' deploy/package/check.sh bin/packages

.PHONY: test-containers
test-containers: ## build the image, run both Compose files with podman, kill containers and cut networks (needs root; pulls nothing)
	GO='$(GO)' deploy/compose/check.sh $(IMAGE)

.PHONY: test
test: ## vet and run every test
# The tests of the tiers wait for clocks more than they compute, so twice as many packages as cores run at a time.
	$(GO) vet ./...
	$(GO) test -p $$((2 * $$(getconf _NPROCESSORS_ONLN))) ./...

.PHONY: test-repeat
test-repeat: ## run every test RUNS (20) times beside a busy core, up to the first failure, whose output is in bin/tests
# The test programs are built once. As many of them run at a time as in make test.
	rm -rf bin/tests && mkdir -p bin/tests
	$(GO) list -f '{{if or .TestGoFiles .XTestGoFiles}}{{.ImportPath}} {{.Dir}}{{end}}' ./... | awk 'NF { print ++n, $$0 }' > bin/tests/packages
	while read -r n package dir; do $(GO) test -c -o bin/tests/$$n.test $$package || exit 1; done < bin/tests/packages
	@while :; do :; done & trap "kill $$!" EXIT; for run in $$(seq $${RUNS:-20}); do begun=$$SECONDS; \
	  xargs -P $$((2 * $$(getconf _NPROCESSORS_ONLN))) -L 1 bash -c 'cd $$2 && $(CURDIR)/bin/tests/$$0.test -test.timeout 10m > $(CURDIR)/bin/tests/$$0.txt 2>&1 || \
	    { echo "$$1 failed: bin/tests/$$0.txt"; grep -E "^ *--- FAIL|^panic:" $(CURDIR)/bin/tests/$$0.txt; exit 1; }' < bin/tests/packages \
	    || { echo "run $$run: failed after $$((SECONDS - begun)) s"; exit 1; }; \
	  echo "run $$run: passed in $$((SECONDS - begun)) s"; done

.PHONY: soak
soak: ## run every test with the long runs that make test skips: about ten minutes on two cores
	SPILLWAY_SOAK=1 $(GO) test -count 1 -timeout 60m ./...

.PHONY: timed
timed: ## run the tests that measure real time with their bounds in force; needs a quiet machine
	SPILLWAY_TIMED=1 $(GO) test -count 1 -p 1 ./cmd/spillway ./global/... ./internal/httpedge/forward ./local ./regional

.PHONY: race
race: ## run every test under the race detector
	$(GO) test -race -timeout 30m ./...

.PHONY: fuzz
fuzz: ## run every decoder's fuzz test for FUZZTIME (20s) each
# Before Go 1.27 the end of -fuzztime may race with the fuzzer's own shutdown and fail with a bare "context deadline
# exceeded" (golang/go#75804). That is let pass when no failing input was written.
	@set -e -o pipefail; log=$$(mktemp); trap 'rm -f $$log' EXIT; for p in $$($(GO) list ./...); do \
	  for f in $$($(GO) test -list '^Fuzz' $$p | grep '^Fuzz' || true); do \
	    echo "== $$p $$f"; \
	    $(GO) test -run '^$$' -fuzz "^$$f$$" -fuzztime $(FUZZTIME) -fuzzminimizetime 1x $$p 2>&1 | tee $$log || \
	      { grep -qx ' *context deadline exceeded' $$log && ! grep -q 'Failing input' $$log; } || exit 1; \
	  done; done

.PHONY: fuzz-smoke
fuzz-smoke: ## run every fuzz test for two seconds, as the checks of a submission do
	GO='$(GO)' .ci/fuzz

.PHONY: bench
bench: ## run the benchmarks five times; BENCH=regexp chooses some
	$(GO) test -run '^$$' -bench '$(BENCH)' -benchmem -count 5 ./...

.PHONY: bench-local
bench-local: ## measure the local tier five times and print it against its targets
	@mkdir -p bin
	$(GO) test -run '^$$' -bench '^Benchmark(ChoosePercentiles|Match220KB|IndexFlood)$$' -benchmem -count 5 ./local/pick > bin/bench-local.txt
	$(GO) test -run '^$$' -bench '^BenchmarkSubmitDispatchFinish$$' -benchmem -count 5 ./local/queue >> bin/bench-local.txt
	$(GO) test -run '^$$' -bench '^BenchmarkScrape100Workers$$' -benchtime 1x -count 5 ./local >> bin/bench-local.txt
	@$(GO) run ./chaos/bench/targets < bin/bench-local.txt

.PHONY: bench-dns
bench-dns: build ## measure DNS answers beside gdnsd, Knot and CoreDNS, where they are installed, against the targets; BENCH_DNS="-rounds 5"
	$(GO) run ./chaos/bench/dns $(BENCH_DNS)
	$(GO) test -c -o bin/global.test ./global
	cd global && SPILLWAY_SWAPS=$${SPILLWAY_SWAPS:-9} ../bin/global.test -test.run '^TestPlanSwapsUnderLoad$$' -test.v | grep -v '^=== \|level='

.PHONY: bench-http
bench-http: build ## measure requests, events and streams beside HAProxy and nginx, where they are installed, against the targets; BENCH_HTTP="-rounds 3 -suites event"
	$(GO) build -o bin/httpbench.bin ./chaos/bench/http
	./bin/httpbench.bin $(BENCH_HTTP)

.PHONY: bench-uplink
bench-uplink: ## measure one parent of 1,000 uplinks of 100 models against its targets; BENCH_UPLINK="-children 100 -profile /tmp/p"
	@mkdir -p bin
	$(GO) build -o bin/uplinkbench ./chaos/bench/uplink
	./bin/uplinkbench $(BENCH_UPLINK)

.PHONY: clients
clients: build ## test a fleet with official clients: curl, the npm packages openai and @anthropic-ai/sdk, openai-go; skips what is not installed
	./chaos/conformance/clients/run.sh bin/spillway bin/clients

.PHONY: attack
attack: build ## attack a fleet on loopback the way its reviewers did, and print what was refused; ATTACK="-only gRPC -dir /tmp/fleet"
	$(GO) run ./chaos/conformance/attack -binary bin/spillway $(ATTACK)

.PHONY: soak-streams
soak-streams: build ## hold 20,000 streams open through a gateway and a local for five minutes, as far as descriptors allow; SOAK="-soaked 5000 -for 1m"
	$(GO) build -o bin/httpbench.bin ./chaos/bench/http
	./bin/httpbench.bin -only path -suites soak $(SOAK)

.PHONY: compliance
compliance: build ## put two global nodes before DNS's testers in a network namespace; KEEP=1 DIR=d keeps their output
	./chaos/conformance/dns/run.sh bin/spillway

.PHONY: linear
linear: ## check 200 random schedules of faults against a linearizable register (LINEAR_RUNS, LINEAR_SEED)
	LINEAR_RUNS=$${LINEAR_RUNS:-200} $(GO) test -run '^TestLinearizable$$' -count 1 -parallel 4 -timeout 60m -v ./consensus | grep -v '^ *\(===\|--- PASS: TestLinearizable/\)'

.PHONY: kills
kills: ## kill -9 the Raft leader 100 times in the middle of applies (SPILLWAY_KILLS)
	SPILLWAY_KILLS=$${SPILLWAY_KILLS:-100} $(GO) test -run '^TestLeaderKills$$' -count 1 -timeout 60m -v ./cmd/spillway

.PHONY: survive
survive: ## kill -9 a worker, a local instance and a peer's gateway under 200 live streams each, and compare every text (SPILLWAY_SURVIVE)
	SPILLWAY_SURVIVE=$${SPILLWAY_SURVIVE:-200} $(GO) test -run '^TestResumedStreamsEqualUndisturbedOnes$$' -count 1 -timeout 15m -v ./cmd/spillway | grep -v '^=== '

.PHONY: fidelity
fidelity: ## run the demo fleet in real time and in the simulator and compare the two (needs a quiet machine); then replay one log through both and compare every choice
	SPILLWAY_FIDELITY=1 $(GO) test -run '^TestFidelity$$' -count 1 -timeout 10m -v ./cmd/spillway
	$(GO) test -run '^TestSimulatorChoosesLikeAgent$$' -count 1 -timeout 10m -v ./chaos/sim

.PHONY: drills
drills: build ## run every drill of the catalogue in the simulator and judge it; runs and reports are in bin/drill-runs; DRILLS="--seed 2"
	./bin/spillway drill run --all --virtual --dir bin/drill-runs $(DRILLS)

.PHONY: drills-live
drills-live: build ## run DRILL (region-loss) live: a fleet of processes with relays, predicted and then measured; needs a quiet machine
	./bin/spillway drill run $${DRILL:-region-loss} --dir bin/drill-runs $(DRILLS)

.PHONY: drill-soak
drill-soak: build ## run 100,000 random drills in the simulator and judge their invariants: about an hour on two cores; SOAK_SEEDS=1000 SOAK_FROM=1
	./bin/spillway drill soak --from $${SOAK_FROM:-1} --seeds $${SOAK_SEEDS:-100000}

.PHONY: mutants
mutants: ## change one line of the product at a time and show which drill, invariant or test catches it; MUTANTS="-only region"
	$(GO) run ./chaos/drill/mutants -go '$(GO)' $(MUTANTS)

.PHONY: large
large: ## apply specs of 10,000 objects to three nodes, restart a follower, and hold both to their targets; needs a quiet machine
	SPILLWAY_LARGE=1 $(GO) test -run '^TestLargeSpecMeetsItsTargets$$' -count 1 -timeout 10m -v ./global

.PHONY: compare
compare: ## compare policies in a zone with a slow, a lying and a leaking worker, and show fairness, in virtual time; COMPARE="-seeds 1 -policies all"
	$(GO) test ./chaos/experiment/compare -run '^TestVirtual$$' -count 1 -timeout 1h -v -args -virtual "-seeds 3 $(COMPARE)"

.PHONY: step
step: ## step one region's demand to 1.3 of its capacity, in virtual time, and print how it settles; STEP="-seeds 1"
	$(GO) test ./chaos/experiment -run '^TestStepTable$$' -count 1 -timeout 2h -v -args -step $(STEP) | grep -v '^=== '

.PHONY: spill
spill: ## halve one region of three under load, in virtual time, and print what spills, with spilling and without; SPILL="-seeds 1"
	$(GO) test ./chaos/experiment -run '^TestSpillTable$$' -count 1 -timeout 2h -v -args -spill $(SPILL) | grep -v '^=== '

.PHONY: leases
leases: ## ask three regions for four times a global limit, with the control plane up, cut off and back, and print what is served
	SPILLWAY_LEASES=1 $(GO) test ./chaos/fleet -run '^TestGlobalTenantLimitHolds$$|^TestLeases' -count 1 -timeout 30m -v | grep -v '^=== \|level='

# The cheapest first; what is named in ONLY is run in that order.
CATALOGUE = E1 E10 E13 E14 E3 E4 E9 E15 E2 E8 E5 E12 E6 E7 E11 E16

.PHONY: experiments
experiments: build ## run the catalogue E1-E16 in virtual time: pages and tables in bin/experiments, all lines in summary.txt there; goes on where it was interrupted; EXPERIMENTS="--small --seeds 1", ONLY="E5 E6"
	@mkdir -p bin/experiments; failed=0; n=0; set -- $${ONLY:-$(CATALOGUE)}; all=bin/experiments/summary.txt; : > $$all.done; \
	./bin/spillway simulate list | awk -v want=" $$* " 'NR == 1 || index(want, " " $$1 " ")'; \
	for e in "$$@"; do \
	  n=$$((n+1)); began=$$(date +%s); out=bin/experiments/$$e.txt; \
	  test -t 2 && printf '[%d of %d] ' $$n $$# >&2; \
	  { cat $$all.done; echo "$$e: under way, number $$n of $$#; what is done so far is in bin/experiments/kept/$$e.txt"; } > $$all; \
	  command=$$(./bin/spillway simulate show $$e | sed -n 's/^command: //p'); \
	  if test -n "$$command"; then \
	    if $$command > $$out 2>&1; then word=pass; else word=FAIL; failed=1; fi; \
	    { echo "$$e: $$word"; echo "$$word  $$command"; } > $$out.head; cat $$out.head $$out > $$out.new; mv $$out.new $$out; rm $$out.head; \
	  else \
	    ./bin/spillway simulate $$e $(EXPERIMENTS) --keep bin/experiments/kept --html bin/experiments/$$e.html > $$out.new || failed=1; \
	    mv $$out.new $$out; test -s $$out || echo "$$e: FAIL, stopped before its end" > $$out; \
	  fi; \
	  { echo "$$(head -1 $$out) ($$(($$(date +%s) - began)) s)"; grep -E '^(pass|FAIL|warning) |^ +open:' $$out | sed 's/^/  /' || true; } | tee -a $$all.done; cp $$all.done $$all; \
	done; rm -f $$all.done; exit $$failed

.PHONY: oracle
oracle: ## replay an hour of 160 agents' sessions against the cache oracles: minutes
	$(GO) test ./chaos/experiment -run '^TestAgentsHitAsMuchAsTheOracle$$' -agentic -count 1 -timeout 60m -v | grep -v '^=== '

.PHONY: lint
lint: ## check formatting and run staticcheck (pinned in internal/tools/go.mod); make test runs vet
	@out=$$($(TOOL) gofumpt -l .); test -z "$$out" || { echo "run 'make fmt': $$out"; exit 1; }
	$(TOOL) staticcheck ./...

.PHONY: fmt
fmt: ## format the code
	$(TOOL) gofumpt -w .

.PHONY: generate
generate: ## write the protobuf code anew; needs protoc (Debian: apt-get install protobuf-compiler)
	@command -v protoc >/dev/null || { echo "protoc is not installed: apt-get install protobuf-compiler"; exit 1; }
	GOBIN=$(CURDIR)/bin $(GO) install -modfile=internal/tools/go.mod google.golang.org/protobuf/cmd/protoc-gen-go
	PATH=$(CURDIR)/bin:$$PATH $(GO) generate ./...

.PHONY: screenshots
screenshots: ## open every view of the console in headless Chromium and write PNGs into bin/screenshots
	rm -rf bin/screenshots && mkdir -p bin/screenshots
	SPILLWAY_SCREENSHOTS=$(CURDIR)/bin/screenshots $(GO) test ./cmd/spillway -run '^TestConsoleInBrowser$$' -count 1 -v

.PHONY: docs
docs: ## write the generated documents: deploy/docs/config-reference.md and metrics-reference.md, and the Grafana dashboards
	$(GO) run ./deploy/grafana
	$(GO) test ./cmd/spillway -run '^Test(Config|Metrics)Reference$$' -count 1 -args -update-docs

.PHONY: clean
clean: ## remove what was built and the demo's state
	rm -rf bin spillway-demo
