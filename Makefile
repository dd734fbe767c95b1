.DEFAULT_GOAL := help
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
STAMP := $(VENV)/.ready-to-test

.PHONY: help
help: ## what there is
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 12

# torch is pinned to a version whose CPU build fits a laptop; the CUDA build comes with your own environment
$(READY): pyproject.toml
	@echo "stepmeter: setting up $(VENV) (once; a minute)" >&2
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --upgrade "pip>=25.1"
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check "torch==2.13.0"
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable ".[examples]"
	@touch $(READY)

$(STAMP): $(READY)
	@echo "stepmeter: installing what the tests need (once; a minute)" >&2
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check "torch==2.13.0" --group dev
	@touch $(STAMP)

.PHONY: setup
setup: $(STAMP) ## make .venv with everything in it

.PHONY: demo
demo: $(READY) ## train a small CNN under stepmeter and print the verdict
	@$(BIN)/stepmeter run --name demo -- $(BIN)/python examples/train_digits.py --epochs 3 --slow-loader 20

.PHONY: test
test: $(STAMP) ## run all tests but those of minutes
	@$(BIN)/python -m pytest -n auto --dist loadscope -m "not slow"

.PHONY: test-slow
test-slow: $(STAMP) ## run the soak and interop tests that take minutes
	@$(BIN)/python -m pytest -m slow --timeout 1200

.PHONY: check
check: $(STAMP) ## format, lint, types, import contracts, schema golden, docs
	@$(BIN)/ruff format --check .
	@$(BIN)/ruff check .
	@$(BIN)/mypy
	@$(BIN)/lint-imports
	@$(BIN)/stepmeter schema --check
	@$(BIN)/python dashboards/generate.py --check

.PHONY: format
format: $(STAMP) ## format and mend what a machine can mend
	@$(BIN)/ruff format .
	@$(BIN)/ruff check --fix .

.PHONY: golden
golden: $(STAMP) ## rewrite the golden files and generated pages after an intended change
	@$(BIN)/stepmeter schema --update-golden
	@$(BIN)/python dashboards/generate.py
	@$(BIN)/python -m pytest --update-golden -m "" -k golden

.PHONY: docs
docs: golden ## rewrite the generated reference pages

.PHONY: bench
bench: $(STAMP) ## measure the targets, as ratios in one run
	@$(BIN)/python benchmarks/run.py

.PHONY: clean
clean: ## remove .venv and what was built
	@rm -rf $(VENV) build dist .pytest_cache .mypy_cache .ruff_cache
