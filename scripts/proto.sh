#!/usr/bin/env bash
# The contracts. `generate` writes the wheel's sources; `check` lints, compares with the baseline for breaking changes
# and proves that the committed sources are what the generator makes; `baseline` takes today's contracts as baseline.
# All in an environment of its own, pinned by proto/requirements.lock.
set -euo pipefail
cd "$(dirname "$0")/.."
venv=$PWD/.venv-proto
lock=$(sha256sum <proto/requirements.lock)
if [ "$(cat "$venv/locked" 2>/dev/null)" != "$lock" ]; then
  echo "proto: installing the generator"
  python3 -m venv "$venv"
  "$venv/bin/pip" --disable-pip-version-check install -qq --progress-bar off --no-deps -r proto/requirements.lock
  echo "$lock" >"$venv/locked"
fi
export PATH="$venv/bin:$PATH"

check() {
  local fresh
  fresh=$(mktemp -d)
  trap 'rm -rf "$fresh"' RETURN
  (cd proto && buf lint && buf breaking --against baseline.binpb && ./generate.sh "$fresh")
  diff -r --exclude=__pycache__ "$fresh/webagent" proto/python/src/webagent || {
    echo "proto: the committed sources are not what the contracts generate; run make proto" >&2
    return 1
  }
  echo "proto: lint, breaking check and generated sources are fine"
}

case "${1:-}" in
  generate) proto/generate.sh ;;
  check) check ;;
  baseline) cd proto && buf build -o baseline.binpb ;;
  *) echo "usage: scripts/proto.sh generate|check|baseline" >&2 && exit 2 ;;
esac
