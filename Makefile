# notebook_agent: every target sets up what it needs. Needs make and Python 3.11+.
#
#   make demo    the main job on a real local model, no key
#   make test    everything
#   make lab     JupyterLab on the notebooks
#   make lint    ruff and mypy
#   make bench   the figures of the README
#   make docs    the documentation site, into site/

PYTHON ?= $(shell for p in python3 python3.13 python3.12 python3.11 python; do \
	$$p -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && echo $$p && break; done)
VENV ?= .venv
BIN = $(VENV)/bin
PIP_FLAGS = --quiet --disable-pip-version-check

.PHONY: demo lab test lint unit notebooks browser compat bench clean model docs

$(BIN)/python:
	@test -n "$(PYTHON)" || { echo "Python 3.11 or newer is needed and was not found. Set PYTHON=/path/to/python3."; exit 1; }
	$(PYTHON) -m venv $(VENV)

$(VENV)/.demo: pyproject.toml | $(BIN)/python
	@echo "Installing into $(VENV); this takes a minute or two and is done once."
	$(BIN)/python -m pip install $(PIP_FLAGS) -e '.[demo]'
	@touch $@

$(VENV)/.test: pyproject.toml | $(BIN)/python
	$(BIN)/python -m pip install $(PIP_FLAGS) -e '.[test]'
	@touch $@ $(VENV)/.demo

model: $(VENV)/.demo
	$(BIN)/notebook-agent fetch-model

demo: model
	$(BIN)/notebook-agent demo

lab: model
	$(BIN)/notebook-agent lab

lint: $(VENV)/.test
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

test: lint
	$(BIN)/python tests/run_all.py

unit: $(VENV)/.test
	$(BIN)/python tests/run_all.py --only unit

notebooks: $(VENV)/.test
	$(BIN)/python tests/run_all.py --only notebooks

browser: $(VENV)/.test
	$(BIN)/python tests/run_all.py --only browser

compat: $(VENV)/.test
	$(BIN)/python tests/run_all.py --only compat

$(VENV)/.docs: pyproject.toml | $(BIN)/python
	$(BIN)/python -m pip install $(PIP_FLAGS) -e '.[docs]'
	@touch $@

docs: $(VENV)/.docs
	$(BIN)/python docs/tables.py
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict --quiet
	@echo "site/index.html"

bench: $(VENV)/.test
	$(BIN)/python -m bench

clean:
	rm -rf $(VENV) .venv-* out site dist build .pytest_cache .mypy_cache .ruff_cache .hypothesis
