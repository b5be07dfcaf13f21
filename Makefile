# The one door: `make run`, `make test`; CI goes through the same. See CONTRIBUTING.md.

# Build products live in the user's cache, so that a second clone does not pay again.
CACHE ?= $(or $(XDG_CACHE_HOME),$(HOME)/.cache)/neokv
CARGO_TARGET_DIR ?= $(CACHE)/target
export CARGO_TARGET_DIR
export NEOKV_CACHE := $(CACHE)
NEOKV := $(CARGO_TARGET_DIR)/release/neokv

# RocksDB is compiled once per version (scripts/rocksdb) and linked by every profile. Where the linker is lld (Rust's default on
# x86-64 Linux) the order of libraries does not matter, and RocksDB is needed for the last step only (scripts/build); elsewhere the
# crate that binds it takes the library in, and needs it first.
ROCKSDB := $(shell scripts/rocksdb --where)
ifneq ($(ROCKSDB),)
ROCKSDB_LIB_DIR ?= $(ROCKSDB)/lib
ROCKSDB_INCLUDE_DIR ?= $(ROCKSDB)/include
export ROCKSDB_LIB_DIR ROCKSDB_INCLUDE_DIR
ifneq ($(shell uname -m),x86_64)
export ROCKSDB_STATIC := 1
endif
endif

.PHONY: help run cluster cluster-down build test test-large idle exec-rate check bench compat crash sim chaos differential expiry-stall big-restart big-delete larger-than-cache cold-reads tools install uninstall dist

# Where the rustup installer puts cargo: it is in the PATH of new shells only.
export PATH := $(or $(CARGO_HOME),$(HOME)/.cargo)/bin:$(PATH)

help:
	@echo 'make run           build and start the server (ARGS="--redis-port 7000" for more)'
	@echo 'make cluster       build and start three nodes on this machine, port 7000 (ARGS="--nodes 5"); make cluster-down ends them'
	@echo 'make install       neokv, its man pages and completions, to PREFIX=$(PREFIX) (DESTDIR=… for packagers); make uninstall removes them'
	@echo 'make dist          the fastest build, packed: dist/*.tar.gz, dist/*.deb, and debug information'
	@echo 'make test          everything CI runs: check, unit tests, transcripts, real clients'
	@echo 'make test-large    a string of 512 MB: exact, and how long others wait; a change too large for the log (6 GB of memory)'
	@echo 'make idle          what three nodes with 1000 quiet regions take'
	@echo 'make check         formatting, clippy, licences and weaknesses of dependencies, layering, shape'
	@echo 'make crash         the server dies $(KILLS) times (KILLS=200 for more): nothing acknowledged is lost'
	@echo 'make sim           a simulated cluster under fresh seeds for SECONDS=$(SECONDS); SEED=… for one of them again'
	@echo 'make chaos         a cluster of real processes, stock clients, rows over a database; all of them killed, paused, cut apart for SECONDS=$(SECONDS), SEED=…; failovers timed'
	@echo 'make differential  random commands on memory, rows and redis-server: equal replies, equal data (ROUNDS=$(ROUNDS), SEED=$(SEED))'
	@echo 'make bench         redis-server and neokv side by side, three nodes beside etcd (ARGS="--only cluster")'
	@echo 'make compat        the Tcl suite of Redis 7.0 against neokv'
	@echo 'make expiry-stall  1 M keys expire at once: the slowest reply meanwhile'
	@echo 'make big-restart   5 GB, kill -9: the time to the first answer'
	@echo 'make big-delete    DEL of collections of 1 M members, and their space'
	@echo 'make cold-reads    a slow disk: does anybody wait for what others read?'
	@echo 'make exec-rate     transactions per second, on disk before they are answered, beside redis-server'
	@echo 'make larger-than-cache  data of four times the cache: right, and steady'

run: build
	$(NEOKV) server $(ARGS)

# A playground in ./neokv-cluster; see docs/operations/cluster.md.
cluster: build
	$(NEOKV) cluster up $(ARGS)

cluster-down:
	$(NEOKV) cluster down $(ARGS)

# What building needs: compilers, and RocksDB.
tools:
	@scripts/install build
	@scripts/rocksdb

build:
	@scripts/install build
	@echo '== building neokv: about eight minutes the first time on two cores, seconds afterwards'
	@scripts/build

test: check
	@scripts/install test
	@echo '== tests: units, properties, transcripts (pure, 1 and 4 shards, redis-server), real clients'
	@scripts/cargo-test --workspace --no-fail-fast

test-large: tools
	cargo test -p neokv --test large -- --ignored --nocapture

# Three nodes with 1000 regions each that nobody uses.
idle: tools
	cargo test --release -p neokv --test idle -- --ignored --nocapture

check: tools
	@echo '== formatting'
	cargo fmt --all --check
	@echo '== clippy'
	cargo clippy --workspace --all-targets --quiet -- -D warnings
	@echo '== licences, bans, known weaknesses of dependencies'
	@scripts/deny
	@echo '== layering and shape'
	@scripts/cargo-test --workspace --test layering --test shape

# kill -9, power cuts, failing fsyncs, full disks; `make test` does the same with fewer deaths.
KILLS ?= 50
crash: tools
	NEOKV_KILLS=$(KILLS) cargo test -p neokv --test crash -- --nocapture --test-threads 1

# Whole clusters in one thread, with faults of every kind; `make test` runs a fixed set of seeds.
# docs/internals/sim.md tells how to read what it prints.
SECONDS ?= 60
sim:
	cargo build --profile simulation -p sim
	$(CARGO_TARGET_DIR)/simulation/sim $(if $(filter command line,$(origin SEED)),--seed $(SEED),--seconds $(SECONDS))

# A cluster of real processes: failovers timed, then faults while stock clients work, then several at random; every
# answer is checked by sim's checkers, every replica by `ctl digest`. `make test` has a short form. Partitions need root
# (network namespaces); without, there are none.
FAILOVERS ?= 30
chaos: tools
	@scripts/install test
	@NEOKV_SECONDS=$(SECONDS) NEOKV_FAILOVERS=$(FAILOVERS) $(if $(filter command line,$(origin SEED)),NEOKV_SEED=$(SEED)) scripts/chaos

# The same sequences side by side; `make test` runs twenty-five. About one per second.
ROUNDS ?= 1000
SEED ?= 1
differential: tools
	@scripts/install test
	NEOKV_ROUNDS=$(ROUNDS) NEOKV_SEED=$(SEED) cargo test -p neokv --test differential -- --nocapture --test-threads 1

bench: build
	@scripts/install bench
	cargo build --release -p load
	scripts/bench.py --neokv $(NEOKV) --load $(CARGO_TARGET_DIR)/release/load $(ARGS)

compat: build
	@scripts/install compat
	scripts/compat.py --neokv $(NEOKV) $(ARGS)

expiry-stall: build
	scripts/expiry_stall.py --neokv $(NEOKV) $(ARGS)

big-restart: build
	scripts/big_restart.py --neokv $(NEOKV) $(ARGS)

big-delete: build
	scripts/big_delete.py --neokv $(NEOKV) $(ARGS)

larger-than-cache: build
	scripts/larger_than_cache.py --neokv $(NEOKV) $(ARGS)

cold-reads: build
	scripts/cold_reads.py --neokv $(NEOKV) $(ARGS)

exec-rate: build
	@scripts/install bench
	scripts/exec_rate.py --neokv $(NEOKV) $(ARGS)

# Built as the user; packaging/place asks for root where PREFIX is not the user's.
PREFIX ?= /usr/local
install: build
	@packaging/place "$(NEOKV)" "$(PREFIX)" "$(DESTDIR)"

uninstall:
	@packaging/place --remove "$(PREFIX)" "$(DESTDIR)"

# The slowest and fastest build, packed for others; see packaging/. The compiler is told what traffic runs through most (decision 32).
dist:
	@scripts/install build
	@scripts/install dist
	@echo '== building neokv twice: once to count what traffic runs through, once to optimize for that; several times as long as make build'
	@flags="$$(scripts/profile)" && RUSTFLAGS="$$RUSTFLAGS $$flags" scripts/build dist
	@scripts/dist $(ARGS)
