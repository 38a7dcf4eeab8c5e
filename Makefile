# Every target sets up its own .venv first; all are safe to run twice and from a path with spaces.
PYTHON ?= python3
BIN := .venv/bin
# pip's own words fill screens and its silence lasts minutes: show only what it is at.
SHOW := /^Collecting/ {print "  " $$2; fflush()} /^Building|^Installing/ {print "  " $$1 " ..."; fflush()}
SHELL := bash
.SHELLFLAGS := -o pipefail -c
# An editable install remembers where each module lies, so a module that is added or moved asks for a new one.
MODULES := $(shell find mona_kernels mona_infer mona_train -name '*.py' | LC_ALL=C sort | cksum | cut -d ' ' -f 1)
INSTALLED := .venv/.installed-$(MODULES)
ORACLES := .venv/.oracles
FUZZER := .venv/.fuzzer
DRIVER := tests/browser/node_modules/.installed

.PHONY: install demo docs test test-all fuzz lint bench bench-gpu clean

install: $(INSTALLED)

$(INSTALLED): pyproject.toml CMakeLists.txt $(wildcard mona_kernels/csrc/*)
	@test -x $(BIN)/python || $(PYTHON) -m venv .venv
	@echo "installing into .venv (the first time takes about two minutes)"
	@$(BIN)/python -m pip install --disable-pip-version-check -e ".[dev,docs,dicom,dicom-seg,train,cpu,bench,slurm,cluster,remote,serve]" | awk '$(SHOW)'
	@$(BIN)/python -m mona_infer.viewing.niivue || true
	@touch $@

demo: $(INSTALLED)
	$(BIN)/mona demo

# Into site/; a warning or a dead link fails it.
docs: $(INSTALLED)
	$(BIN)/sphinx-build --quiet --fail-on-warning --keep-going --doctree-dir build/doctrees docs site

lint: $(INSTALLED) docs
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

# What drives Chromium in the tests of pages; without npm or Chromium they are skipped.
$(DRIVER): tests/browser/package-lock.json
	@npm ci --prefix tests/browser --ignore-scripts --no-audit --no-fund --silent --fetch-retries=1 && touch $@ \
		|| echo "playwright-core was not installed (is npm there?): tests of pages in Chromium will be skipped"

# The tests of every day: 2 workers, a fixed sample of the full-size sets.
test: lint $(DRIVER)
	$(BIN)/python -m pytest -n 2 --dist loadgroup -m "not full and not gpu"

# What `make test-all` checks mona against. pydicom-seg asks for numpy < 2 but its reader works with newer ones; of
# monailabel only the client is wanted, not its server.
$(ORACLES): pyproject.toml | $(INSTALLED)
	@echo "installing the programs that mona is checked against"
	@$(BIN)/python -m pip install --disable-pip-version-check -e ".[oracles,parquet]" | awk '$(SHOW)'
	@$(BIN)/python -m pip install --disable-pip-version-check --no-deps "pydicom-seg==0.4.1" "monailabel==0.8.5" | awk '$(SHOW)'
	@touch $@

test-all: lint $(ORACLES) $(DRIVER)
	$(BIN)/python -m pytest -n 2 --dist loadgroup -m "not gpu"

$(FUZZER): pyproject.toml | $(INSTALLED)
	@echo "installing atheris, which guides the fuzzing by coverage"
	@$(BIN)/python -m pip install --disable-pip-version-check -e ".[fuzz]" | awk '$(SHOW)'
	@touch $@

# Every reader on damaged input, SECONDS altogether; it fails if one breaks its promise (CONTRIBUTING.md says what then).
SECONDS ?= 3600
fuzz: $(FUZZER)
	$(BIN)/python tests/fuzz/run.py --seconds $(SECONDS)

# Alone on the machine, please: it measures.
bench: $(INSTALLED)
	$(BIN)/python tools/bench.py

# For a machine with a CUDA device: correctness first, then times and memory.
bench-gpu: $(INSTALLED)
	$(BIN)/python -m pytest -m gpu
	$(BIN)/python tools/bench_gpu.py

clean:
	rm -rf tests/browser/node_modules mona_infer/viewing/vendor .venv build demo site .mypy_cache .ruff_cache .pytest_cache .hypothesis
