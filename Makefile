# Everything here builds its own virtual environment on a machine that has only python3 (3.11 or newer) and make.
PYTHON ?= python3
# Another interpreter beside the first: make test PYTHON=python3.13 VENV=.venv313
VENV ?= .venv
BIN := $(VENV)/bin
# make pins PINS_FLAGS=--upgrade takes the newest releases; without it only what is missing changes.
PINS_FLAGS ?=
COMPILE = $(BIN)/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes \
	--no-emit-index-url --no-emit-find-links --custom-compile-command "make pins" $(PINS_FLAGS)
# The pyright from the pinned wheels is the one that runs; it must not look for a newer one.
PYRIGHT = PYRIGHT_PYTHON_IGNORE_WARNINGS=1 $(BIN)/pyright --pythonpath $(BIN)/python
PYTEST = $(BIN)/python -m pytest
# The parts whose every branch is tested, by tests that need neither processes nor a clock.
PURE_TESTS = tests/core tests/sim
# What plays with the scheduler at random: it covers by chance, and takes twice as long when it is traced.
RANDOM_TESTS = tests/core/test_machine.py tests/sim
PURE_COVERAGE = --cov=slipstream.core --cov=slipstream.protocol --cov-branch --cov-fail-under=100 \
	--cov-report=term-missing:skip-covered

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: help run test test-long check bench format pins clean

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-10s %s\n", $$1, $$2 }' Makefile

run: $(VENV)/ready ## count the identifiers of the standard library, a task per file
	$(BIN)/slipstream run examples/identifiers.py

test: $(VENV)/ready ## run the tests and the doctests
	$(PYTEST) tests/core --ignore=tests/core/test_machine.py $(PURE_COVERAGE)
	$(PYTEST) $(RANDOM_TESTS)
	$(PYTEST) tests src/slipstream --doctest-modules -m 'not long' $(PURE_TESTS:%=--ignore=%)

test-long: $(VENV)/ready ## run what `test` leaves out: the standard library's suite, random programs and graphs
	$(PYTEST) tests -m long $(PURE_TESTS:%=--ignore=%)

check: $(VENV)/ready ## lint, formatting, types, direction of imports
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(PYRIGHT)
	$(BIN)/lint-imports

bench: $(VENV)/ready-bench ## measure Slipstream beside its peers
	$(BIN)/slipstream bench

format: $(VENV)/ready ## put imports and layout in order
	$(BIN)/ruff check --select I --fix .
	$(BIN)/ruff format .

pins: $(VENV)/ready ## resolve requirements/*.txt again from pyproject.toml and requirements/*.in
	$(COMPILE) pyproject.toml requirements/dev.in --output-file requirements/dev.txt
	$(COMPILE) requirements/bench.in --constraint requirements/dev.txt --output-file requirements/bench.txt

clean: ## remove the environment and everything that the tools leave
	rm -rf $(VENV) dist .coverage .hypothesis .import_linter_cache .pytest_cache .ruff_cache
	find . -name __pycache__ -type d -not -path './.venv*' -prune -exec rm -rf {} +

$(VENV)/ready: requirements/dev.txt pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || \
		{ echo "Slipstream needs Python 3.11 or newer, and $(PYTHON) is older or missing: make PYTHON=python3.11"; exit 1; }
	@$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null || \
		{ echo "$(PYTHON) cannot make a virtual environment (on Debian: apt-get install python3-venv)"; exit 1; }
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes --requirement requirements/dev.txt
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation --editable .
	touch $@

$(VENV)/ready-bench: $(VENV)/ready requirements/bench.txt
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes --requirement requirements/bench.txt
	touch $@
