# Every target is a thin call; what it does stands in scripts/ or in the webagent command.
.DEFAULT_GOAL := help
.PHONY: help setup train test test-all lint type proto proto-check proto-baseline charts lock doctor up clean
BIN := .venv/bin
PYTEST := $(BIN)/pytest -q -n 2 --dist loadfile
ARGS ?=

help: ## List the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-16s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

setup: ## Install everything into .venv, Chromium and the default model
	@scripts/setup.sh

train: setup ## Train an agent from nothing on this machine (ARGS="--seed 1")
	@$(BIN)/webagent train $(ARGS)

test: setup lint type proto-check ## Everything that must hold, within a quarter of an hour
	@$(PYTEST) -m "not slow" $(ARGS)

test-all: setup lint type proto-check ## The same and what takes longer
	@$(PYTEST) $(ARGS)

lint: setup ## Style and formatting
	@$(BIN)/ruff check -q . && $(BIN)/ruff format -q --check .

type: setup ## Types, and which package may import which
	@$(BIN)/mypy && $(BIN)/lint-imports --no-logo

proto: ## Generate the Python sources of the contracts
	@scripts/proto.sh generate

proto-check: ## Lint the contracts, refuse breaking changes, prove the generated sources current
	@scripts/proto.sh check

proto-baseline: ## Take today's contracts as the baseline of the breaking check
	@scripts/proto.sh baseline

charts: ## Write the charts' schemas, tables of values and the examples' renders
	@$(BIN)/python k8s/generate.py && PYTHONPATH=tests/support $(BIN)/python tests/support/chart_goldens.py

lock: ## Resolve the locks (ARGS=--upgrade to move the pins)
	@scripts/lock.sh $(ARGS)

doctor: ## Say what this machine lacks
	@$(BIN)/webagent doctor $(ARGS)

up: setup ## Start the local stack and stay
	@$(BIN)/webagent up $(ARGS)

clean: ## Remove environments and caches; runs/ and models/ stay
	@scripts/clean.sh
