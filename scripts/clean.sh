#!/usr/bin/env bash
# Removes what make setup and the tools made. Runs and models stay.
set -euo pipefail
cd "$(dirname "$0")/.."
rm -rf .venv .venv-proto .cache .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
find proto libs services tests \( -name __pycache__ -o -name '*.egg-info' -o -name build \) -prune -exec rm -rf {} +
