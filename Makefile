# `make help` lists the targets. Everything here can also be typed by hand: the Makefile only
# remembers the commands.

SHELL := /bin/bash
.DEFAULT_GOAL := help

# See .ci/toolchain: spares a download where the pinned compiler has another name.
toolchain := $(shell .ci/toolchain)
ifneq ($(toolchain),)
export RUSTUP_TOOLCHAIN := $(toolchain)
endif

CARGO ?= cargo
FUZZ_SECONDS ?= 60
SOAK_SCALE ?= 20
PREFIX ?= /usr/local
DESTDIR ?=
CARGO_DEB_VERSION = 3.8.0
CARGO_DENY_VERSION = 0.20.2
CARGO_MUTANTS_VERSION = 27.1.0
RELEASE = $(or $(CARGO_TARGET_DIR),target)/release

.PHONY: help
help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  %-13s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

.PHONY: demo
demo: ## train on real digits through the aggregator; installs and builds what is missing
	@testbed/deploy/demo.sh

.PHONY: test
test: ## lints and every test of the daily tier; .ci/test STAGE runs one stage
	@testbed/deploy/install-deps.sh test || echo "test: going on with what is here" >&2
	@.ci/test

.PHONY: nightly
nightly: ## what is a day later: documentation, sweeps, timing, a node without DPDK, instructions
	@testbed/deploy/install-deps.sh test || echo "nightly: going on with what is here" >&2
	@.ci/test --nightly

.PHONY: test-p4
test-p4: ## all that BMv2 is needed for; fails where it is not on PATH (docs/switch.md)
	$(CARGO) build -p weft-node -p weft-testbed --bins
	WEFT_REQUIRE_P4=1 $(CARGO) test -p weft-p4-interpreter --test interpreter
	WEFT_REQUIRE_P4=1 $(CARGO) test -p weft-tests --test suite --test live -- \
		p4_build:: conformance:: p4_random:: live_switch:: live_mininet::

.PHONY: deps
deps: ## install the Debian packages that all targets need; asks first, CI=true does not
	@testbed/deploy/install-deps.sh bench

.PHONY: build
build: ## build weft, weft-controller, weft-node, weft-bench (release; with DPDK where libdpdk is)
	@testbed/deploy/build.sh

.PHONY: install
install: build ## programs and all that they need: PREFIX (/usr/local), DESTDIR
	@PREFIX=$(PREFIX) DESTDIR=$(DESTDIR) testbed/deploy/install.sh

.PHONY: dist
dist: build ## a tarball and a Debian package in dist (docs/packages.md); builds cargo-deb once
	@cargo-deb --version >/dev/null 2>&1 || \
		cargo install cargo-deb --locked --version $(CARGO_DEB_VERSION) --no-default-features || true
	@testbed/deploy/dist.sh

.PHONY: test-dist
test-dist: dist ## digits, conformance and replay from the package, in a root of its own
	@tests/package.sh dist/weft_*.deb

.PHONY: lint
lint: ## formatting, clippy and documentation, warnings are errors
	@.ci/test fmt clippy plain doc

.PHONY: deny
deny: ## licences, bans, sources and advisories of all dependencies; needs cargo-deny, network
	@cargo deny --version >/dev/null 2>&1 || { \
		echo "deny: no cargo-deny; make deny-install builds it" >&2; exit 3; }
	@.ci/test --nightly deny
	cargo deny --locked check advisories

.PHONY: deny-install
deny-install: ## build cargo-deny into cargo's bin folder, unless it is there; some minutes
	@cargo deny --version >/dev/null 2>&1 || \
		cargo install cargo-deny --locked --version $(CARGO_DENY_VERSION) --no-default-features

.PHONY: bench
bench: build ## the figures of docs/performance.md; takes some minutes on a quiet machine
	@testbed/deploy/install-deps.sh bench
	@trap 'exit 1' INT TERM; failed=; \
	run() { echo "$$*"; "$$@" || failed="$$failed; $$*"; }; \
	weft=$(RELEASE)/weft; \
	run $$weft bench aggregator --source all --crc both; \
	run $$weft bench aggregator --source pcap --crc both --order 2,8,32 --rounds 3; \
	run $$weft bench aggregator --source pcap --crc off --jobs 2 --order step,8 --rounds 3; \
	run $$weft bench aggregator --source pcap --crc off --quota --rounds 3; \
	run $$weft bench aggregator --source pcap --crc off --frames ipv6,vlan --rounds 3; \
	run $$weft bench aggregator --source pcap --crc off --lcores 2 --rounds 3; \
	run $$weft bench forged; \
	run $$weft bench allreduce --io udp -e 4M; \
	run $$weft bench allreduce -b 64M -e 64M -w 4 -n 1 --warmup-iters 0 --io dpdk \
		--rate-mbit 100 --type f32; \
	run $$weft bench gate; \
	run $$weft bench allreduce --peers -e 4M; \
	[ -z "$$failed" ] || { echo "bench: failed$$failed" >&2; exit 1; }

.PHONY: bench-peers
bench-peers: build ## OpenMPI's and Gloo's allreduce beside Weft's, shaped and not; takes hours
	@testbed/deploy/install-deps.sh bench
	$(RELEASE)/weft bench allreduce --peers -w 2,4,8,16
	$(RELEASE)/weft bench allreduce --peers --rates 0 --mtus 9000,65535
	$(RELEASE)/weft bench allreduce --peers --one-host

.PHONY: bench-parts
bench-parts: ## the kernels and the planner (criterion), the controller's load, a DPDK burst's cost
	$(CARGO) bench -p weft-kernel
	$(CARGO) bench -p weft-plan --bench plan
	$(CARGO) bench -p weft-controller --bench load
	$(CARGO) run --release -p weft-dpdk --example burst_cost -- echo --vdev=net_ring0

.PHONY: gate
gate: ## instructions per packet against the committed figures (callgrind)
	@.ci/test --nightly build gate

.PHONY: soak
soak: ## simulations and attacks, SOAK_SCALE (20) times as long as in make test
	WEFT_SIM_SCALE=$(SOAK_SCALE) $(CARGO) test --release -p weft-tests \
		--test suite -- --nocapture simulation::
	$(CARGO) build --release -p weft-node -p weft-controller -p weft-testbed
	WEFT_ATTACK_SCALE=$(SOAK_SCALE) $(CARGO) test --release -p weft-tests \
		--test live --test steered -- --nocapture attack_
	WEFT_ATTACK_SCALE=$(SOAK_SCALE) .ci/test build clients

.PHONY: soak-keys
soak-keys: ## a hot key of 16 threads: 100,000 pushes and pulls each, its history checked
	$(CARGO) build -p weft-node
	$(CARGO) build -p weft-client --example hot_key
	WEFT_KEYS_SCALE=50 $(CARGO) test -p weft-tests --test live -- --nocapture \
		a_hot_key_of_sixteen_threads

.PHONY: fuzz
fuzz: ## fuzz each target for FUZZ_SECONDS (60); needs nightly and cargo-fuzz
	@for target in $$(ls tests/fuzz/fuzz_targets); do \
		(cd tests/fuzz && cargo +nightly fuzz run --fuzz-dir . $${target%.rs} -- \
			-max_total_time=$(FUZZ_SECONDS)) || exit 1; \
	done

.PHONY: mutants
mutants: ## break the code by cargo-mutants, survivors.toml has what may live; takes hours
	@cargo mutants --version 2>/dev/null | grep -qF " $(CARGO_MUTANTS_VERSION)" || \
		cargo install cargo-mutants --locked --force --version $(CARGO_MUTANTS_VERSION)
	tests/mutants/sweep.py $(MUTANTS)

.PHONY: mutants-rules
mutants-rules: ## break the named rules one by one; each must fail its tests
	tests/mutants/rules.py

.PHONY: clean-lab
clean-lab: ## take down every lab on this machine
	@$(CARGO) build -q -p weft-testbed
	@weft=$${CARGO_TARGET_DIR:-target}/debug/weft; \
		$$weft lab list | while read -r lab _; do $$weft lab down "$$lab"; done
