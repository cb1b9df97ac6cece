# Every target does its own set-up: `make test` on a fresh machine with Python 3.11 is enough.
PYTHON ?= $(shell command -v python3.11 || command -v python3)
BIN := .venv/bin
UV ?= $(BIN)/uv
export PIP_DISABLE_PIP_VERSION_CHECK := 1
PINNED := --quiet --no-deps --require-hashes
# triton is for `compiled=true` on a GPU alone and takes 0.9 GB: `make setup OMIT=none` installs it too, as conda and the images do.
# A torch from another index brings libraries of its own.
OMIT := $(if $(TORCH_INDEX),torch|torchvision|triton|nvidia-.*|cuda-.*,triton)

.PHONY: help setup lock check test lint docs site reproduce tables notebooks benchmark trust clean
.DEFAULT_GOAL := help

help:  ## list the targets
	@grep -hE '^[a-z]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 14

setup: .venv/.installed  ## .venv with the packages of requirements.lock (5.6 GB, under 2 minutes, once); TORCH_INDEX=ADDRESS: torch from there

.venv/.installed: requirements.lock
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
		|| { echo "Python 3.11 or newer is needed: make setup PYTHON=/path/to/python3.11"; exit 1; }
	$(PYTHON) -m venv .venv
	@awk '/^[a-z]/ {taken = /^uv==/} taken' requirements.lock > .venv/uv.lock
	@awk '/^[a-z]/ {taken = !/^($(OMIT))==/} taken' requirements.lock > .venv/packages.lock
	{ command -v $(UV) || $(BIN)/pip install $(PINNED) -r .venv/uv.lock; } \
		&& $(UV) pip install $(PINNED) --python $(BIN)/python --cache-dir .venv/.cache -r .venv/packages.lock \
		|| $(BIN)/pip install $(PINNED) -r .venv/packages.lock
	@rm -rf .venv/.cache
	$(if $(TORCH_INDEX),grep -oE '^torch(vision)?==[^ ]+' requirements.txt | xargs $(BIN)/pip install --quiet --index-url $(TORCH_INDEX))
	@touch $@

lock: setup  ## requirements.lock from requirements.txt, and that of the peers: every package that is needed, with hashes
	$(UV) pip compile --quiet --universal --python-version 3.11 --generate-hashes --custom-compile-command "make lock" \
		requirements.txt --output-file requirements.lock
	$(UV) pip compile --quiet --universal --python-version 3.11 --generate-hashes --custom-compile-command "make lock" \
		experiments/peers/peers.txt --output-file experiments/peers/peers.lock

lint: setup  ## ruff and mypy
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy trace experiments

check: lint  ## lint and the fast unit tests (at most 90 seconds)
	$(BIN)/pytest -n auto --dist loadgroup --no-loadscope-reorder -m "not slow"

test: lint  ## set-up, lint, then the whole suite on all cores (about 25 minutes)
	$(BIN)/pytest -n auto --dist loadgroup --no-loadscope-reorder

reproduce: setup  ## every experiment at CPU scale, its tables, figures and ledger into build/reproduce, and a comparison
	$(BIN)/python -m experiments reproduce

tables: setup  ## everything printed, from the committed records alone (a minute)
	$(BIN)/python -m experiments tables
	$(BIN)/python -m experiments figures
	$(BIN)/python -m experiments claims

notebooks: setup  ## run the notebooks and store their outputs in them (two minutes)
	$(BIN)/python -m tests.notebooks

docs: setup  ## the manual, from the docstrings, into build/docs (half a minute)
	$(BIN)/python -W error -m experiments manual

site: setup  ## the results page, from the committed records alone, into build/site (two minutes)
	$(BIN)/python -W error -m experiments site

benchmark: setup  ## speed and memory against peers, into results/ (about 17 minutes)
	$(BIN)/python -m experiments benchmark
	$(BIN)/python -m experiments tables

trust: setup  ## every attack and fault with counts, into results/ (at most 15 minutes; SLURM where it is installed)
	$(BIN)/python -m tests.trust
	$(BIN)/python -m experiments tables

clean:  ## remove .venv and caches
	rm -rf .venv build dist *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis
