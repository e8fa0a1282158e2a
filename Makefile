# What people, pre-commit and CI all call. `make` alone lists the targets.

SHELL := bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
MAKEFLAGS += --no-print-directory

VENV := .venv
BIN := $(VENV)/bin
PYTHON := $(BIN)/python
PIP := $(PYTHON) -m pip --disable-pip-version-check install --quiet
# The kernels that every plan needs, and those of the solver under a time limit; without this the first plan compiles
# them while its model is captured, and the first `solve` within its time limit.
COMPILE = echo "Compiling kernels (once, half a minute)"; \
	$(PYTHON) -c 'from alpa_explore.pricing.warm_up import warm_up; warm_up()' & plans=$$!; \
	$(PYTHON) -c 'from alpa_explore.iopddl.search import warm_up_search; warm_up_search()'; wait $$plans
LINTED := alpa_explore widgets tests benchmarks notebooks

# `make explore BROWSER=no` prints the address instead of opening it; PORT=8900 chooses a port.
BROWSER ?= yes
PORT ?=
# `make test TIERS="default slow"`; `make test NO_SKIPS=yes` fails where a tier or a test would be skipped (CI).
TIERS ?=
NO_SKIPS ?=
# The file that keeps what each run of the tests took and repeated; out/tests/runs.jsonl when empty.
LEDGER ?=
# `make bench` prints one table; `make bench BENCH=layering` runs another file of benchmarks/.
BENCH ?= summary

.PHONY: help explore install install-dev test test-browser check lint types format notebooks screenshots bench clean

help: ## List the targets
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## /\1\t/' | awk -F'\t' '{printf "  make %-13s %s\n", $$1, $$2}'

explore: install ## Install what is needed and open the tour in JupyterLab (BROWSER=no: print the address)
	@exec $(BIN)/alpa-explore lab notebooks/00_tour.ipynb $(if $(filter no,$(BROWSER)),--no-browser) $(if $(PORT),--port $(PORT))

install: $(VENV)/installed ## Make .venv and install the package in it

install-dev: $(VENV)/installed-dev ## The same, with what tests and checks need

# A stamp holds until pyproject.toml changes; the package is installed editable, so its code needs no new install.
# pip before 25.1 does not know dependency groups.
$(VENV)/installed: pyproject.toml | $(VENV)/bin/python
	@echo "Installing alpa-explore in $(VENV) (PyTorch is large: the first time takes minutes)"
	@$(PIP) 'pip>=25.1'
	@$(PIP) --editable .
	@$(COMPILE)
	@touch $@

$(VENV)/installed-dev: pyproject.toml | $(VENV)/bin/python
	@echo "Installing alpa-explore and its development tools in $(VENV) (PyTorch is large: the first time takes minutes)"
	@$(PIP) 'pip>=25.1'
	@# Of 18,000 files pip would compile each, for a minute on one core; Python compiles those that are imported.
	@$(PIP) --no-compile --editable . --group dev
	@# PyPI's torchvision does not fit torch's CPU build, and transformers fails where it lies beside; nothing here needs it.
	@$(PIP) --no-compile --no-deps 'onnx2torch>=1.5.15'
	@# nbgrader's buttons would stand in the JupyterLab that browser tests open; a test calls its commands alone.
	@rm -rf $(VENV)/etc/jupyter/jupyter_server_config.d/nbgrader.json $(VENV)/share/jupyter/labextensions/@jupyter/nbgrader
	@$(COMPILE)
	@touch $@ $(VENV)/installed

# Each candidate is run, not only looked up: a version manager's shim may exist for a Python that does not.
$(VENV)/bin/python:
	@for candidate in python3 python3.13 python3.12 python3.11; do \
	  if "$$candidate" -c 'import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1; then \
	    echo "Making $(VENV) with $$candidate ($$("$$candidate" -c 'import platform; print(platform.python_version())'))"; \
	    exec "$$candidate" -m venv $(VENV); \
	  fi; \
	done; \
	echo "No usable Python 3.11 or newer among python3, python3.13, python3.12, python3.11." >&2; \
	echo "Install one with its venv module, for example: apt-get install python3 python3-venv" >&2; \
	exit 1

test: install-dev ## Run every tier of tests that this machine can run, and say which it cannot
	@$(PYTHON) tests/tiers.py $(TIERS) $(if $(NO_SKIPS),--no-skips) $(if $(LEDGER),--ledger '$(LEDGER)')

test-browser: install-dev ## Only the browser tier
	@$(PYTHON) tests/tiers.py browser

check: lint types ## Format, lint, import layers, types

lint: install-dev
	@$(BIN)/ruff format --check $(LINTED)
	@$(BIN)/ruff check $(LINTED)
	@$(BIN)/lint-imports --no-cache

types: install-dev
	@$(BIN)/mypy

format: install-dev ## Rewrite the sources in the house format and fix what ruff can fix
	@$(BIN)/ruff format $(LINTED)
	@$(BIN)/ruff check --fix $(LINTED)

notebooks: install-dev ## Strip the notebooks of outputs, write what follows from them, then run a copy of each
	@$(BIN)/nbstripout notebooks/*.ipynb
	@$(BIN)/alpa-explore course sync
	@$(PYTHON) -m pytest tests/notebooks

screenshots: install-dev ## Make the README's picture again (needs Chromium)
	@PYTHONPATH=. $(PYTHON) widgets/screenshots/take.py

bench: install-dev ## One table of work, seconds and other methods in the same run (BENCH=layering: one of the others)
	@for name in $(BENCH); do echo "== $$name"; PYTHONPATH=. $(PYTHON) "benchmarks/$$name.py"; done

clean: ## Remove .venv, caches and build results
	rm -rf $(VENV) build dist out .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
