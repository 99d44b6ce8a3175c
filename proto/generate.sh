#!/usr/bin/env bash
# Generates the wheel's sources from the contracts, with the generator found in PATH (proto/requirements.lock pins it).
# usage: generate.sh [DIRECTORY]
set -euo pipefail
cd "$(dirname "$0")"
out=${1:-python/src}
rm -rf "$out/webagent"
mapfile -t protos < <(find webagent -name '*.proto' | sort)
python -m grpc_tools.protoc -I . --python_out="$out" --grpc_python_out="$out" \
  --mypy_out="quiet:$out" --mypy_grpc_out="quiet:$out" "${protos[@]}"
touch "$out/webagent/py.typed"
