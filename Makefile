# Everything starts from Python (3.11 or newer) and make; the rest is installed into .venv at the versions in constraints.txt.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
INSTALL := $(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt

.DEFAULT_GOAL := help
.PHONY: help demo test lint docs clean

help: ## show this list
	@sed -n 's/^\([a-z]*\):.*## /  make \1\t/p' Makefile

demo: $(VENV)/.installed ## install what the library needs, then run the demo
	$(BIN)/candidly demo

test: lint ## install the development tools too, then check style, types and behaviour
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n 2

lint: $(VENV)/.installed-dev ## check style and types only
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy

docs: $(VENV)/.installed-docs ## build the documentation site into site/; a dead link is an error
	$(BIN)/zensical build --clean --strict

clean: ## remove the environment, builds and caches; results under runs/ stay
	rm -rf $(VENV) build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find src tests -name __pycache__ -type d -prune -exec rm -rf {} +

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "candidly needs Python 3.11 or newer, this is " + sys.version.split()[0] + "; run: make PYTHON=python3.11")'
	$(PYTHON) -m venv $(VENV)

# pip first: --group needs pip 25.1, older than many Pythons bring. The environment is order-only because its time stamp
# is the base interpreter's.
$(VENV)/.pip: constraints.txt | $(BIN)/python
	$(INSTALL) --upgrade pip
	@touch $@

$(VENV)/.installed: pyproject.toml constraints.txt $(VENV)/.pip
	$(INSTALL) --build-constraint constraints.txt -e .
	@touch $@

$(VENV)/.installed-dev: $(VENV)/.installed
	$(INSTALL) --build-constraint constraints.txt -e '.[all]' --group dev
	@touch $@

$(VENV)/.installed-docs: pyproject.toml constraints.txt $(VENV)/.pip
	$(INSTALL) --group docs
	@touch $@
