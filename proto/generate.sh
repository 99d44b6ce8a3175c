#!/usr/bin/env bash
# Generates the Python wheel's sources from the contracts, in the environment that proto/requirements.lock pins.
set -euo pipefail
cd "$(dirname "$0")"
out=python/src
rm -rf "$out/webagent"
mapfile -t protos < <(find webagent -name '*.proto' | sort)
python -m grpc_tools.protoc -I . --python_out="$out" --grpc_python_out="$out" \
  --mypy_out="quiet:$out" --mypy_grpc_out="quiet:$out" "${protos[@]}"
touch "$out/webagent/py.typed"
