# `make help` lists what a person types. Everything runs in a virtual environment of this checkout.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
PACELINE := $(BIN)/paceline
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check

.DEFAULT_GOAL := help
.PHONY: help install run status psql test test-fast test-deploy check format lock bench bench-plot
.PHONY: chaos chaos-run chaos-model chaos-full clean

help: ## what there is to type
	@grep -E '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## (.*)/  make \1|\2/' | column -t -s '|'

install: $(VENV)/installed ## the virtual environment, with the embedded Postgres and the tools of development

$(VENV)/installed: pyproject.toml deploy/requirements-dev.lock
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "$(PYTHON) is older than 3.11: make $(MAKECMDGOALS) PYTHON=python3.11"; exit 1; }
	@$(PYTHON) -m venv $(VENV) || { echo "no venv: apt install python3-venv"; exit 1; }
	$(PIP) --require-hashes -r deploy/requirements-dev.lock
	$(PIP) --no-deps --no-build-isolation --editable .
	@touch $@

run: install ## run all queues in the sandbox: no vendor is called (LIVE=github calls that one itself)
	@exec $(PACELINE) run --sandbox $(addprefix --live=,$(LIVE))

status: install ## what every queue of it does
	@$(PACELINE) status --sandbox

psql: install ## a psql on its database
	@exec $(BIN)/python deploy/psql.py

# Tests mostly wait for facts: four at once, on two cores, take a third of the time.
test: install ## all tests
	$(BIN)/python -m pytest -n 4

test-fast: install ## the tests that take under a second each
	$(BIN)/python -m pytest -n 4 -m 'not slow'

test-deploy: install ## deploy/: lint it, build the image in a root of its own and run it (root, debootstrap, network)
	$(PIP) --require-hashes -r deploy/requirements-deploy.lock
	PACELINE_TEST_IMAGE=build/image $(BIN)/python -m pytest tests/deploy

check: install ## lint, types, import rules, and what is enqueued
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(PACELINE) check

format: install ## lay the code out
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

# Every version, and the hash of every artefact of it, for all platforms and Pythons. Commit what changes.
COMPILE = $(BIN)/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-annotate \
  --upgrade --custom-compile-command 'make lock'
lock: install ## the newest dependencies, with hashes: of the image, of `make install`, of `make test-deploy`
	$(PIP) uv
	$(COMPILE) --extra web pyproject.toml -o deploy/requirements.lock
	echo 'setuptools>=68' | $(COMPILE) --extra dev pyproject.toml - -c deploy/requirements.lock \
	  -o deploy/requirements-dev.lock
	$(COMPILE) --extra deploy pyproject.toml -c deploy/requirements-dev.lock \
	  -o deploy/requirements-deploy.lock

bench: install ## speed and size, against floors measured in the same run; ONLY=wake,idle for a part, FULL=1 for all
	$(BIN)/python -m tests.bench $(if $(ONLY),--only $(ONLY)) $(if $(FULL),--full)

bench-plot: install ## pictures of what `make bench` has measured
	$(PIP) --editable '.[bench]'
	$(BIN)/python -m tests.bench.plot

SECONDS ?= 60
SEED ?= 1

chaos: chaos-run chaos-model chaos-full ## a run under a seeded stream of faults (SECONDS=60 SEED=1), and what is too big for `make test`

chaos-run: install
	$(BIN)/python -m tests.chaos $(SECONDS) $(SEED)

chaos-model: install
	$(BIN)/python -m tests.model.lease 2 2 3
	$(BIN)/python -m tests.model.lease 2 2 2 --unequal

chaos-full: install
	$(BIN)/python -m pytest -m full

clean: ## remove what make has made; the embedded database stays
	rm -rf $(VENV) .mypy_cache .ruff_cache .import_linter_cache *.egg-info build
