# Every target does its own set-up: `make test` on a fresh machine with Python 3.11 is enough.
PYTHON ?= $(shell command -v python3.11 || command -v python3)
BIN := .venv/bin

.PHONY: help setup check test lint docs reproduce tables benchmark clean
.DEFAULT_GOAL := help

help:  ## list the targets
	@grep -hE '^[a-z]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 14

setup: .venv/.installed  ## .venv with every direct dependency pinned (about 3 minutes, once)

.venv/.installed: requirements.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
		|| { echo "Python 3.11 or newer is needed: make setup PYTHON=/path/to/python3.11"; exit 1; }
	$(PYTHON) -m venv .venv
	$(BIN)/pip install --quiet --disable-pip-version-check -r requirements.txt
	@touch $@

lint: setup  ## ruff and mypy
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy trace experiments

check: lint  ## lint and the fast unit tests (at most 90 seconds)
	$(BIN)/pytest -n auto --dist loadgroup --no-loadscope-reorder -m "not slow"

test: lint  ## set-up, lint, then the whole suite on all cores (about 10 minutes)
	$(BIN)/pytest -n auto --dist loadgroup --no-loadscope-reorder

reproduce: setup  ## every experiment at CPU scale, its tables, figures and ledger into build/reproduce, and a comparison
	$(BIN)/python -m experiments reproduce

tables: setup  ## everything printed, from the committed records alone (a minute)
	$(BIN)/python -m experiments tables
	$(BIN)/python -m experiments figures
	$(BIN)/python -m experiments claims

docs: setup  ## the manual, from the docstrings, into build/docs (ten seconds)
	$(BIN)/python -W error -m experiments manual

benchmark: setup  ## speed and memory against peers, into results/ (about 17 minutes)
	$(BIN)/python -m experiments benchmark
	$(BIN)/python -m experiments tables

clean:  ## remove .venv and caches
	rm -rf .venv build dist *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis
