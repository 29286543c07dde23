# GNU make 3.81 (macOS) or newer, and any Python from 3.11 on. Everything lives in .venv; the stamp
# files in it make a repeated call cheap.

PYTHON ?=
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
JOBS ?= 3
PYTEST := $(BIN)/python -m pytest

.DEFAULT_GOAL := help
.PHONY: help setup demo test soak lint format bench completions pictures lowest clean

help: ## show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-12s %s\n", $$1, $$2 }' $(firstword $(MAKEFILE_LIST))

setup: $(READY) ## make .venv with clawq and what the checks need (PYTHON=python3.12 picks one)

demo: $(READY) ## a small fleet from first enqueue to last outcome, in a temporary home
	@$(BIN)/python -m demo

test: $(READY) ## every test but the soak ones
	$(PYTEST) -n $(JOBS)

soak: $(READY) ## the long random tests, and in full those that `make test` runs in short
	SOAK=1 $(PYTEST) -n $(JOBS) -m "soak or sized"

lint: $(READY) ## ruff, mypy --strict, import-linter
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-logo

format: $(READY) ## let ruff format and fix what it can
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

bench: $(READY) ## the figures clawq promises, measured here beside its neighbours
	@$(BIN)/python -m benchmarks

completions: $(READY) ## write completions/ anew from the declared options
	$(BIN)/python -m clawq.cli.completion completions

pictures: $(READY) ## draw docs/pictures anew, from a queue that really runs
	@$(BIN)/python -m demo.pictures

lowest: $(READY) ## the tests with the oldest dependencies that pyproject.toml allows
	$(BIN)/python .ci/lowest.py

clean: ## remove .venv and every cache
	rm -rf $(VENV) .venv-lowest .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache dist

# The first Python that is new enough and can make a venv. A pyenv shim may exist and still not run.
find_python = for candidate in $(if $(PYTHON),"$(PYTHON)",python3.13 python3.12 python3.11 python3.14 python3 \
		"$$HOME"/.pyenv/versions/3.1[1-9]*/bin/python3); do \
		"$$candidate" -c 'import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 11))' 2>/dev/null \
		&& printf '%s\n' "$$candidate" && break; done

$(BIN)/python:
	@python=$$($(find_python)); \
	if [ -z "$$python" ]; then \
		echo "make: no Python 3.11 or newer that can make a venv was found$(if $(PYTHON), as $(PYTHON)):" \
			"install one (Debian: python3-venv too), or name it with PYTHON=" >&2; exit 1; fi; \
	echo "making $(VENV) with $$python"; "$$python" -m venv --clear $(VENV)

# pip first: the launcher that an older one writes imports re, some milliseconds of every `clawq enqueue`.
$(READY): pyproject.toml | $(BIN)/python
	@echo "installing clawq and its checks into $(VENV)"
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --upgrade pip
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[dev]'
	@touch $@
