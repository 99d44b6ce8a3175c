#!/usr/bin/env bash
# Resolves the locks: requirements/local.lock for the whole system in one environment, and one lock for each service
# alone, held to the same versions. Pins stay as they are unless `--upgrade` is given.
set -euo pipefail
cd "$(dirname "$0")/.."
uv=.cache/venv-lock/bin/uv
if [ ! -x "$uv" ]; then
  python3 -m venv .cache/venv-lock
  .cache/venv-lock/bin/pip install -qq --disable-pip-version-check uv==0.13.8
fi

# compile OUT ARGUMENT...: torch's own CUDA packages are left to the build of torch that pip finds.
compile() {
  local out=$1
  shift
  "$uv" pip compile -q --no-progress --python-version 3.11 --no-annotate --no-header --no-emit-index-url \
    --no-emit-find-links --override requirements/overrides.txt --constraint requirements/constraints.txt -o "$out" "$@"
  grep -vE '^(nvidia-|cuda-)' "$out" >"$out.tmp"
  mv "$out.tmp" "$out"
  echo "$out: $(wc -l <"$out") packages"
}

# service NAME EXTRA...: the extras of the service and of the runtime that its image holds.
service() {
  local name=$1 extras=()
  shift
  for extra in "$@"; do extras+=(--extra "$extra"); done
  compile "services/$name/requirements.lock" --constraint requirements/local.lock "${extras[@]}" \
    proto/python/pyproject.toml libs/runtime/pyproject.toml "services/$name/pyproject.toml"
}

compile requirements/local.lock "$@" --extra queue --extra vllm --extra vllm-grpc --extra verified --extra mcp \
  --extra gymnasium requirements/dev.in \
  proto/python/pyproject.toml libs/*/pyproject.toml services/*/pyproject.toml
service env
service evaluator verified
service rollout queue s3
service inference queue s3 vllm vllm-grpc
service trainer queue s3

# vLLM for CUDA instead of for the CPU, for the image's target of that name. Its torch is PyPI's build, which brings the
# CUDA libraries; triton is what it compiles with.
cuda=.cache/venv-lock/cuda
grep -v '^triton' requirements/overrides.txt >"$cuda.overrides"
echo vllm==0.32.0 >"$cuda.in"
"$uv" pip compile -q --no-progress --python-version 3.11 --python-platform x86_64-manylinux_2_28 --no-annotate \
  --no-header --no-emit-index-url --no-emit-find-links --override "$cuda.overrides" \
  --constraint services/rollout/requirements.lock --extra queue --extra s3 --extra vllm-grpc \
  -o services/inference/requirements-cuda.lock "$cuda.in" \
  proto/python/pyproject.toml libs/runtime/pyproject.toml services/inference/pyproject.toml
echo "services/inference/requirements-cuda.lock: $(wc -l <services/inference/requirements-cuda.lock) packages"
