# The one entry point. `make` lists what there is.
#
# Python packages come through uv, which keeps them in .venv and rebuilds the Rust extension when its sources change.
# Without uv on the PATH, or with one too old for pyproject.toml, a pinned one is put into .tools; nothing outside this
# folder is changed.

UV_VERSION := 0.13.8
PYTHON_NEEDED := 3.11

PYTHON ?= python3
UV := $(if $(shell uv python dir 2>/dev/null),uv,.tools/bin/uv)
RUN := $(UV) run
CARGO := $(UV) run cargo

# Peers of the benchmarks beyond those in the bench group. `make bench PEERS=` does without them.
PEERS ?= gigabpe==0.1.0 gigatoken==0.10.0 toktok-rs==0.3.0
# Options for the cases encode and train, for example BENCH="--megabytes 10 --repeat 3".
BENCH ?=

# Seconds for each fuzz target, and which of address, thread and valgrind `make sanitize` runs (all by default).
FUZZ_SECONDS ?= 120
SANITIZE ?=

# The oldest torch that is supported. The newest that is tested is in the constraints of pyproject.toml.
OLDEST_TORCH ?= 2.6.0
TORCH_TESTS := --dist loadfile -m "not network and not gpu and not cluster" tests/lm

# Python of the machine with a GPU, and the packages of bytemill that come neither with torch nor with its tools.
GPU_PYTHON ?= 3.12
GPU_PACKAGES := annotated-types attrs cyclopts docstring-parser docutils filelock pydantic pydantic-core rich-rst \
	typing-inspection

# An environment that is active in the shell is not the project's.
unexport VIRTUAL_ENV
# What Python compiles is kept, whatever the shell says, and kept here: the tests start hundreds of processes.
unexport PYTHONDONTWRITEBYTECODE
export PYTHONPYCACHEPREFIX := $(CURDIR)/.cache/pycache
# Where rustup puts cargo, for shells that have not read its profile yet.
export PATH := $(PATH):$(HOME)/.cargo/bin
MAKEFLAGS += --no-print-directory

.DEFAULT_GOAL := help

.PHONY: help
help: ## List the targets
	@awk 'BEGIN { FS = ":.*## " } /^[a-z][a-z0-9-]*:.*## / { printf "  make %-12s %s\n", $$1, $$2 }' Makefile

.PHONY: demo
demo: _python ## Train a tokenizer and a small language model and see what they do, in ./quickstart (5 minutes)
	$(RUN) --no-dev --extra lm bytemill quickstart

.PHONY: test
test: _python _cargo ## Run the tests of the Rust core and of the Python package
	$(CARGO) test --workspace --locked
	$(RUN) pytest -n 2 --dist worksteal

.PHONY: test-web
test-web: _python ## Run all tests of the studio in Chromium (two and a half minutes)
	$(RUN) pytest -n 2 --dist worksteal -m "browser or smoke" tests/studio/browser

.PHONY: test-night
test-night: _python ## Run the property tests with ten times the examples, and the slow tests (an hour)
	$(RUN) pytest -n 2 --dist worksteal --hypothesis-profile=night -m "not network and not gpu and not cluster and not azure"

.PHONY: test-aarch64
test-aarch64: _cargo ## Run the core's tests for ARM under qemu (needs qemu-user, gcc-aarch64-linux-gnu; 10 minutes)
	rustup target add aarch64-unknown-linux-gnu
	PROPTEST_CASES=8 CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_LINKER=aarch64-linux-gnu-gcc \
		CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_RUNNER="qemu-aarch64 -L /usr/aarch64-linux-gnu" \
		$(CARGO) test --locked -p bytemill --lib --target aarch64-unknown-linux-gnu

.PHONY: gpu-bundle
gpu-bundle: _python ## Put what a bare machine with torch lacks for benchmarks/gpu.py into .cache/gpu-bundle (20 MB)
	rm -rf .cache/gpu-bundle
	$(UV) pip install --quiet --target .cache/gpu-bundle --python-version $(GPU_PYTHON) \
		--python-platform x86_64-manylinux_2_28 --only-binary :all: --no-deps $(GPU_PACKAGES)
	cp python/bytemill/_core.abi3.so .cache/gpu-bundle
	-strip .cache/gpu-bundle/_core.abi3.so

.PHONY: coverage
coverage: _python ## Run the tests of the Python package and check which lines they reach (half as long again)
	$(RUN) pytest -n 2 --dist loadfile --cov

.PHONY: lint
lint: _python _cargo ## Check style, types and warnings in Python and Rust
	$(RUN) ruff check
	$(RUN) ruff format --check
	$(RUN) pyright
	$(RUN) lint-imports
	$(CARGO) fmt --all --check
	$(CARGO) clippy --workspace --all-targets --locked -- -D warnings
	$(CARGO) clippy --manifest-path fuzz/Cargo.toml --no-default-features --all-targets --locked -- -D warnings

.PHONY: test-cluster
test-cluster: _python ## Run the tests of the faults of a Ray cluster (about five minutes, Linux)
	$(RUN) pytest -n 0 -m cluster

.PHONY: test-torch
test-torch: _python ## Run all tests of language models with the newest and the oldest torch (downloads 3 GB; half an hour)
	$(RUN) pytest -n 2 $(TORCH_TESTS)
	UV="$(UV)" .ci/with-torch $(OLDEST_TORCH) -m pytest -n 2 -W ignore::DeprecationWarning -W ignore::FutureWarning \
		$(TORCH_TESTS)

.PHONY: format
format: _python _cargo ## Rewrite Python and Rust in the project's style
	$(RUN) ruff check --fix
	$(RUN) ruff format
	$(CARGO) fmt --all

.PHONY: docs
docs: _python ## Build the documentation site into ./site and check its links
	NO_MKDOCS_2_WARNING=1 $(RUN) --group docs python -m mkdocs build --strict --quiet

.PHONY: wheel
wheel: _python _cargo ## Build a wheel for all of Linux on this processor into ./dist, and try it in an empty environment
	rm -rf dist
	$(UV) run --no-project --with maturin==1.16.0 --with ziglang maturin build --release --locked \
		--compatibility manylinux_2_28 --zig --out dist
	cd tests/package && $(UV) run --no-project --isolated --with ../../dist/*.whl python smoke.py

.PHONY: web
web: _python _node ## Build the front end of the studio (needs Node)
	$(RUN) python web/openapi_schema.py web/openapi.json
	cd web && npm install --no-package-lock --no-fund --no-audit --silent && npm run --silent types && npm run --silent check && npm run --silent build

.PHONY: check-web
check-web: web ## Build the front end and compare it with the committed files
	@git diff --exit-code --stat -- python/bytemill/studio/static web/src/lib/api-types.ts \
		&& test -z "$$(git status --porcelain -- python/bytemill/studio/static)" \
		|| { echo 'error: the committed front end differs from its source: commit what make web has built' >&2; exit 1; }

.PHONY: screenshots
screenshots: _python ## Take the pictures of the studio in docs/images (needs Chromium)
	$(RUN) python -m tests.studio.browser.screenshots docs/images

.PHONY: bench
bench: _python ## Time training and encoding side by side with the peers (about an hour; BENCH="--megabytes 5" is quick)
	$(RUN) python -m benchmarks corpus
	$(RUN) --group bench $(PEERS:%=--with %) python -m benchmarks encode $(BENCH)
	$(RUN) --group bench $(PEERS:%=--with %) python -m benchmarks train $(BENCH)

.PHONY: check-speed
check-speed: _python _cargo ## Hold hostile texts and instruction counts to their limits (6 minutes)
	$(RUN) --group bench $(PEERS:%=--with %) python -m benchmarks hostile --check
	$(RUN) python -m benchmarks instructions --check

.PHONY: exactness
exactness: _python ## Compare all texts at hand and ten million random strings with regex and tiktoken (half an hour)
	$(RUN) python -m benchmarks exactness texts
	$(RUN) python -m benchmarks exactness random

.PHONY: fuzz
fuzz: _python _cargo ## Fuzz what reads and splits bytes, two minutes for each of six targets (FUZZ_SECONDS=900 for more)
	fuzz/run $(FUZZ_SECONDS)

.PHONY: sanitize
sanitize: _cargo ## Run the core's tests under AddressSanitizer, ThreadSanitizer and valgrind (20 minutes; SANITIZE="address")
	.ci/sanitize $(SANITIZE)

.PHONY: clean
clean: ## Remove what the other targets made, except benchmark results
	rm -rf .venv .tools .cache target dist quickstart site uv.lock web/node_modules web/openapi.json fuzz/target .hypothesis .pytest_cache .ruff_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
	find python -name '_core*.so' -delete

# What the targets above need; each says in one line what is missing.

.PHONY: _python
_python: $(filter .tools/%,$(UV))
	@test -x .venv/bin/python || $(UV) python find '>=$(PYTHON_NEEDED)' >/dev/null 2>&1 \
		|| $(UV) python install --quiet '$(PYTHON_NEEDED)' 2>/dev/null \
		|| { echo 'error: Python $(PYTHON_NEEDED) or newer is needed, and none could be found or fetched: install it first' >&2; exit 1; }

.PHONY: _cargo
_cargo:
	@cargo --version >/dev/null 2>&1 \
		|| { echo 'error: cargo is needed: install Rust with rustup (the stable toolchain)' >&2; exit 1; }
	@{ cargo clippy --version && cargo fmt --version; } >/dev/null 2>&1 \
		|| { echo 'error: clippy and rustfmt are needed: rustup component add clippy rustfmt' >&2; exit 1; }

.PHONY: _node
_node:
	@npm --version >/dev/null 2>&1 || { echo 'error: npm is needed: install Node.js 20 or newer' >&2; exit 1; }

.tools/bin/uv:
	@command -v $(PYTHON) >/dev/null \
		|| { echo 'error: python3 is needed: install Python $(PYTHON_NEEDED) or newer, or uv' >&2; exit 1; }
	@$(PYTHON) -m venv --clear .tools >/dev/null 2>&1 \
		|| { rm -rf .tools; echo 'error: $(PYTHON) cannot make virtual environments: install python3-venv (Debian, Ubuntu) or uv' >&2; exit 1; }
	@echo 'fetching uv $(UV_VERSION) into .tools'
	@.tools/bin/python -m pip install --quiet --disable-pip-version-check uv==$(UV_VERSION) \
		|| { rm -rf .tools; echo 'error: uv could not be fetched: see above, or install uv $(UV_VERSION) yourself' >&2; exit 1; }
