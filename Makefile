# Needs Python 3.11+ and nothing else of ours: .venv is made on first use, and again when setup.cfg changes.
.DEFAULT_GOAL := help
.PHONY: help demo quick test test-rest test-all lint types layers pytest coverage docs bench faults simulate matrix build venv clean
PY := .venv/bin/python
# Each process of the tests would compile the package again.
unexport PYTHONDONTWRITEBYTECODE
SEEDS ?= 10000
NODES ?= 0
RUNS ?= 20
# Workers mostly wait for servers and leases: there are more of them than processors, and more where tests wait longest.
# A worker without tests takes some from another, because the tests of one module may take minutes.
PYTEST := $(PY) -m pytest --dist worksteal -n 4

help: ## this list
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/make \1	\2/p' $(MAKEFILE_LIST) | expand -t 16

demo: .venv/demo ## a flash sale with the lock and without it, until Ctrl-C on a terminal; NODES=3 locks on three servers
	@scripts/redis
	@$(PY) -m testproject.demo --nodes $(NODES) $(ARGS)

quick: lint ## on each save, half a minute: style, and tests of what needs memory or one Redis
	$(PYTEST) --tier quick

test: lint types layers ## before a commit, three minutes: what finds most mistakes; needs no more than a redis-server
	$(PY) -m tests.simulation --seeds 1000
	$(PYTEST) --tier test

test-rest: .venv/dev .venv/system docs ## what `make test` leaves out, servers installed where it may
	$(PY) -m tests.simulation --first 1000 --seeds 9000
	$(PYTEST) -n 7 --tier rest

test-all: ## everything that .ci/run checks, a quarter of an hour
	$(MAKE) --no-print-directory test
	$(MAKE) --no-print-directory test-rest

lint: .venv/dev ## style and format
	$(PY) -m ruff check
	$(PY) -m ruff format --check

types: .venv/dev ## mypy, strict
	$(PY) -m mypy

layers: .venv/dev ## imports point down only
	.venv/bin/lint-imports

pytest: .venv/dev .venv/system ## any of the tests; make pytest ARGS="-k renewal -x"
	$(PYTEST) $(ARGS)

coverage: .venv/dev .venv/system ## the tests, and which lines of the package they run
	$(PY) -m coverage run -m pytest $(ARGS)
	$(PY) -m coverage combine --quiet
	$(PY) -m coverage report

docs: .venv/dev ## docs/_build/html, warnings are errors
	$(PY) -m sphinx -W --keep-going -q -b html docs docs/_build/html

bench: .venv/bench ## this package beside its peers, as ratios; make bench ARGS="pair handover"
	@scripts/redis
	@$(PY) -m tests.benchmarks $(ARGS)

faults: .venv/dev .venv/system ## make faults RUNS=200: real servers killed, paused and cut off, clients that fight
	REDLOCK_FAULT_RUNS=$(RUNS) $(PY) -m pytest -n 2 tests/faults $(ARGS)

simulate: .venv/dev ## make simulate SEEDS=100000: the flows under random faults in virtual time
	$(PY) -m tests.simulation --seeds $(SEEDS) $(ARGS)

matrix: .venv/dev ## the tests on oldest and newest Python, Django, Celery, redis-py and servers; writes docs/compatibility.rst
	$(PY) scripts/matrix.py $(ARGS)

build: .venv/dev ## dist/: what is published
	rm -rf dist
	$(PY) -m pip wheel --quiet --no-deps --no-build-isolation --wheel-dir dist .
	$(PY) -m twine check --strict dist/*

venv: .venv/dev ## .venv with all that development needs

clean: ## remove what make has made
	rm -rf .venv .matrix build dist docs/_build .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .hypothesis htmlcov
	rm -rf *.egg-info .coverage .coverage.*

.venv/demo .venv/dev .venv/bench: setup.cfg pyproject.toml scripts/venv
	@scripts/venv $(@F)
	@touch $@

.venv/system: scripts/system-packages | .venv/dev
	@scripts/system-packages
	@touch $@
