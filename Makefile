# Each target sets up first what is missing (system packages, .venv), so none needs another first.
python := .venv/bin/python

.PHONY: demo test lint build clean setup

demo: setup
	@$(python) scripts/demo.py

# The linters first: they take seconds, and pytest's closing line stays the last one.
test: lint
	$(python) -m pytest -n auto -q

lint: setup
	$(python) -m ruff check
	$(python) -m ruff format --check
	$(python) -m mypy

build: setup
	.venv/bin/shaderloom build

clean:
	rm -rf .venv .cache .pytest_cache .mypy_cache .ruff_cache .hypothesis build dist generated/spv

setup:
	@sh scripts/setup.sh
