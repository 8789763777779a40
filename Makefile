# Azekura: what people type. `make help` lists it.
# Recipes are short; anything longer is a script in scripts/.

SHELL := bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help

PREFIX ?= /usr/local
DESTDIR ?=
CARGO ?= cargo
BIN := target/release/azekura
DEBUG ?=
# Length of the fuzz runs, seconds over all targets together.
FUZZ_SECONDS ?= 10
FUZZ_SECONDS_LONG ?= 600
# A test program that takes longer hangs; it is ended so that the others still run.
TEST_LIMIT ?= 15m
# The same for all of `COMPUTING` together, which others take the cores from.
COMPUTING_LIMIT ?= 35m
# Programs of tests that start real engines, mounts and stores, and mostly wait for them: they run while the others are built.
WAITING := outages commands tier mounts programs preload install upgrade control
TEST_PROGRAMS := $(sort $(basename $(notdir $(wildcard crates/*/tests/*.rs))) $(notdir $(patsubst %/main.rs,%,$(wildcard crates/*/tests/*/main.rs))))
# Programs that compute for minutes, in worlds of their own, whatever the time: they go on where the build ends.
COMPUTING := cluster swarm
WAITING_TESTS := --workspace $(WAITING:%=--test %)
OTHER_TESTS := --workspace --lib --bins $(patsubst %,--test %,$(filter-out $(WAITING) $(COMPUTING),$(TEST_PROGRAMS)))
COMPUTING_TESTS := --workspace $(COMPUTING:%=--test %)
TESTS := --workspace --lib --bins --tests
# So many of them at a time.
WAITING_THREADS ?= 3
# Simulated clusters allocate and drop large buffers without end: the C library keeps the memory, or a quarter of the time is the kernel's, which clears it anew.
KEPT_MEMORY := env MALLOC_TRIM_THRESHOLD_=1073741824 MALLOC_MMAP_THRESHOLD_=1073741824 MALLOC_TOP_PAD_=67108864
LIMITED := --config 'target."cfg(unix)".runner=["timeout","--kill-after=10","$(TEST_LIMIT)"]'

.PHONY: help quickstart build test test-long mutants bench install uninstall packages clean

help: ## Show this list
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## (.*)/  make \1\t\2/' | expand -t 24

quickstart: ## Build, start a system, store and read back a tree, mount it, show how fast it is
	scripts/need.sh
	$(CARGO) build --release -p cli -p intercept
	scripts/quickstart.sh $(BIN)

build: ## Build for release: target/release/{azekura,libazekura.so,libazekura_ioc.so,libazekura_intercept.so}
	$(if $(DEBUG),CARGO_PROFILE_RELEASE_DEBUG=line-tables-only) $(CARGO) build --release -p cli -p capi -p ioc -p intercept

# The pause is for cargo to see that the tests are built: while it looks it keeps others out, and while they are built it would be kept out.
# Clippy also compiles the examples; there are no tests in documentation.
# The fuzzer is the one that `cargo test` builds for its tests: `cargo build` would make it anew, with fewer features of its libraries.
test: ## Everything a change must pass
	$(CARGO) fmt --all --check
	$(CARGO) xtask tidy
	$(CARGO) test $(WAITING_TESTS) --no-run
	failed=0; \
	scripts/beside.sh "sleep 20; $(CARGO) test $(OTHER_TESTS) $(COMPUTING:%=--test %) --no-run && $(CARGO) clippy --workspace --all-targets -- -D warnings && \
		$(KEPT_MEMORY) timeout --kill-after=10 $(COMPUTING_LIMIT) $(CARGO) test $(COMPUTING_TESTS) --no-fail-fast" \
		$(CARGO) test $(LIMITED) $(WAITING_TESTS) --no-fail-fast -- --test-threads $(WAITING_THREADS) || failed=$$?; \
	$(KEPT_MEMORY) $(CARGO) test $(LIMITED) $(OTHER_TESTS) --no-fail-fast || failed=$$?; \
	exit $$failed
	$${CARGO_TARGET_DIR:-target}/debug/fuzz --seconds $(FUZZ_SECONDS)

test-long: test ## The same with release code, more random cases and long fuzzing
	PROPTEST_CASES=4096 AZEKURA_SIM_SEEDS=500 AZEKURA_SIM_HOURS=24 AZEKURA_SWARM_SEEDS=5000 AZEKURA_CRASH_SEEDS=20000 AZEKURA_ALL_FLIPS=1 AZEKURA_ALL_PLACES=1 AZEKURA_KILL_ROUNDS=100 AZEKURA_CHAOS_MINUTES=5 AZEKURA_CHAOS_HEALING=1 AZEKURA_AWAY_MINUTES=5 AZEKURA_TX_TROUBLES=1 $(CARGO) test --release $(TESTS) --no-fail-fast
	$(CARGO) run --release --quiet -p fuzz -- --seconds $(FUZZ_SECONDS_LONG)
	scripts/fuzz-guided.sh

mutants: ## Put defects in, one at a time, in a copy of the tree: a test must find each
	$(CARGO) xtask mutants

bench: build ## Bandwidth and metadata rates of a fresh system on this machine
	scripts/bench.sh $(BIN)

install: build ## Install below PREFIX (default /usr/local); DESTDIR is put in front; DEBUG=1 keeps debug files
	DEBUG=$(DEBUG) scripts/install.sh $(BIN) "$(DESTDIR)$(PREFIX)"

uninstall: ## Remove what `make install` put below PREFIX
	scripts/install.sh --remove "$(DESTDIR)$(PREFIX)"

packages: build ## A Debian package, and an RPM where rpmbuild is there: target/packages
	scripts/packages.sh $(BIN) target/packages

clean: ## Remove build output
	$(CARGO) clean
