# Needs only Python (3.11 or newer) and make; the rest is installed into .venv at the versions in constraints.txt.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
INSTALL := $(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt

# Tests start many processes, which would compile the library again without its bytecode.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: help demo test engines lint format coverage docs build clean

help: ## list the targets
	@sed -n 's/^\([a-z]*\):.*## /  make \1\t/p' Makefile

demo: $(VENV)/.installed ## install the library and run the demo
	$(BIN)/candidly demo

test: lint ## install the development tools, check style and types, and run all tests
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n 2

engines: $(VENV)/.installed-engines ## install Dask and Ray (300 MB) and run the tests that start them
	CANDIDLY_ENGINES=1 OMP_NUM_THREADS=1 $(BIN)/python -m pytest -m engines tests/bench

lint: $(VENV)/.installed-dev ## check style and types
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy

format: $(VENV)/.installed-dev ## format the code and fix what ruff can fix
	$(BIN)/ruff check --fix
	$(BIN)/ruff format

coverage: $(VENV)/.installed-dev ## run all tests and print the coverage; about half as fast as make test
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n 2 --cov --cov-report=term

docs: $(VENV)/.installed-docs ## build the documentation site into site/; a dead link is an error
	$(BIN)/zensical build --clean --strict

build: $(VENV)/.installed-dev ## build the wheel and the source archive into dist/
	PIP_CONSTRAINT=constraints.txt $(BIN)/python -m build

clean: ## remove the environment, builds and caches, but not the results under runs/
	rm -rf $(VENV) build dist .coverage .pytest_cache .mypy_cache .ruff_cache .hypothesis .cache site
	find src tests -name __pycache__ -type d -prune -exec rm -rf {} +

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "candidly needs Python 3.11 or newer, this is " + sys.version.split()[0] + "; run: make PYTHON=python3.11")'
	$(PYTHON) -m venv $(VENV)

# pip is upgraded first: --group needs pip 25.1, and many Pythons come with an older one. The environment is an
# order-only prerequisite because its time stamp is that of the base interpreter.
$(VENV)/.pip: constraints.txt | $(BIN)/python
	$(INSTALL) --upgrade pip
	@touch $@

$(VENV)/.installed: pyproject.toml constraints.txt $(VENV)/.pip
	$(INSTALL) --build-constraint constraints.txt -e '.[all]'
	@touch $@

$(VENV)/.installed-dev: pyproject.toml constraints.txt $(VENV)/.pip
	$(INSTALL) --build-constraint constraints.txt -e '.[all]' --group dev
	@touch $(VENV)/.installed $@

$(VENV)/.installed-engines: $(VENV)/.installed-dev
	$(INSTALL) --build-constraint constraints.txt -e '.[dask,ray]'
	@touch $@

$(VENV)/.installed-docs: pyproject.toml constraints.txt $(VENV)/.pip
	$(INSTALL) --group docs
	@touch $@
