# `make demo` and `make test` do all the set-up themselves; a second call is fast.

VENV   := .venv
BIN    := $(VENV)/bin
PYTHON ?= $(shell for p in python3.11 python3.12 python3.13 python3; do command -v $$p >/dev/null 2>&1 \
            && $$p -c 'import sys; sys.exit(sys.version_info < (3, 11))' && echo $$p && break; done)
PIP    := $(BIN)/python -m pip --disable-pip-version-check install -qq -c constraints.txt

# Whatever in the documentation is made by a command, and goes stale without it: the quick ones first.
FIGURES := theory commands tutorial pictures bench pricing explorer paper emulate soak summary

.PHONY: help demo test check lint types contracts docs pytest figures $(FIGURES) tables fuzz coverage clean

help:
	@echo 'make demo    set up, plan a vision transformer for four unequal devices, prove it, train it on real digits'
	@echo 'make test    set up, then make check'
	@echo 'make check   ruff, mypy, import-linter, docs, pytest (in an environment that is set up)'
	@echo 'make docs    the documentation as a site in build/site; a warning fails'
	@echo 'make figures  make every table and picture of the documentation anew, as root (an hour and a half); each part alone:'
	@echo '       theory    docs/theory.md, the reference of all operators, from their declarations (seconds)'
	@echo '       commands  docs/commands.md, every verb and its options, from what --help says (seconds)'
	@echo '       tutorial  run what the tutorial and the README show, and write what it prints into them (minutes)'
	@echo '       pictures  drawings, and the explorer'"'"'s screens (minutes)'
	@echo '       bench     measure the search (half an hour)'
	@echo '       pricing   measure pricing and editing (minutes)'
	@echo '       explorer  measure what a person waits for in the explorer (minutes)'
	@echo '       paper     the evaluation of HAP'"'"'s paper, in simulation (a quarter of an hour)'
	@echo '       emulate   run plans and their rivals on an emulated cluster, as root (half an hour)'
	@echo '       soak      kill a run a hundred times in twenty minutes, and see that nothing is lost'
	@echo '       summary   the table in the README, from what the others have kept (seconds)'
	@echo 'make tables  all tables once more from what was measured, measuring nothing (seconds)'
	@echo 'make fuzz    break texts for ten minutes (FUZZ=600 seconds) and look for anything but a diagnostic'
	@echo 'make coverage  the tests once more (an hour), and which branches they take, by folder'
	@echo 'make clean   remove what the above made'

demo: $(VENV)/.demo
	@$(BIN)/python -m hapdsl.demo

test: $(VENV)/.test
	@$(MAKE) --no-print-directory check

check: lint types contracts docs pytest

lint:
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types:
	$(BIN)/mypy

contracts:
	$(BIN)/lint-imports --no-cache

docs:
	@$(BIN)/python docs/build_site.py

FUZZ ?= 600
fuzz:
	$(BIN)/python -m tests.fuzz --seconds $(FUZZ)

# TESTS="tests/check tests/run" measures these anew and keeps the rest; MISSING="hapdsl/check" lists its branches that aren't taken.
coverage: $(VENV)/.test
	$(BIN)/python -m tests.covered $(TESTS) $(if $(MISSING),--missing $(MISSING))

# -- the documentation's figures ---------------------------------------------------

figures:
	@set -e; for part in $(FIGURES); do $(MAKE) --no-print-directory $$part; done

theory:
	$(BIN)/python -m hapdsl.theory.reference docs/theory.md

commands:
	$(BIN)/python docs/commands.py

tutorial:
	$(BIN)/python docs/walk.py docs/tutorial.md README.md

pictures:
	$(BIN)/python docs/pictures.py
	$(BIN)/python docs/screenshots.py

bench:
	$(BIN)/python -m benchmarks.search

pricing:
	$(BIN)/python -m benchmarks.pricing

explorer:
	$(BIN)/python -m benchmarks.explorer

paper:
	$(BIN)/python -m benchmarks.paper --anew

emulate:
	$(BIN)/python -m benchmarks.accuracy
	$(BIN)/python -m benchmarks.emulate --cluster benchmarks/results/accuracy.hap

soak:
	$(BIN)/python -m benchmarks.soak -o benchmarks/results/soak.json

summary:
	$(BIN)/python -m benchmarks.summary

# All of them once more from what was measured; nothing is measured.
tables:
	$(BIN)/python -m benchmarks.tables

# ----------------------------------------------------------------------------------

# Each process begins with half of the tests, file by file, and takes some of the other's when it is through.
pytest:
	$(BIN)/python -m pytest -n 2 --dist worksteal

# -- set-up ----------------------------------------------------------------------

# torch goes first, by itself: pins say which, and the rest then finds it installed.
$(VENV)/.torch: constraints.txt | $(VENV)/.made
	@echo 'installing torch (once, about a minute)' >&2
	@$(PIP) torch
	@touch $@

$(VENV)/.demo: $(VENV)/.torch pyproject.toml
	@echo 'installing hapdsl and what it needs' >&2
	@$(PIP) -e '.[digits]'
	@touch $@

$(VENV)/.test: $(VENV)/.torch pyproject.toml
	@echo 'installing hapdsl and what its tests need' >&2
	@$(PIP) -e '.[test]'
	@touch $@ $(VENV)/.demo

# Some systems have Python without ensurepip; then the pip that is there fills the environment.
$(VENV)/.made:
	@test -n '$(PYTHON)' || { echo 'Python 3.11 or newer is needed' >&2; exit 2; }
	@echo 'making $(VENV) with $(PYTHON)' >&2
	@$(PYTHON) -m venv $(VENV) 2>/dev/null || { $(PYTHON) -m venv --clear --without-pip $(VENV) \
	    && $(PYTHON) -m pip --python $(BIN)/python install --quiet pip; }
	@# Pictures need graphviz's dot; without it everything else works.
	@command -v dot >/dev/null 2>&1 || { test "$$(id -u)" = 0 && command -v apt-get >/dev/null 2>&1 \
	    && { apt-get install -qq -y --no-install-recommends graphviz >/dev/null 2>&1 \
	         || { apt-get update -qq >/dev/null 2>&1; apt-get install -qq -y --no-install-recommends graphviz >/dev/null 2>&1; }; }; } || true
	@touch $@

clean:
	rm -rf $(VENV) build dist demo .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache *.egg-info
