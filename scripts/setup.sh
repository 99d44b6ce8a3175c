#!/usr/bin/env bash
# Makes this checkout ready to run: .venv with all packages, Chromium, the default model. Safe to run again: what is
# done already is not done twice, and changed locks are installed. Only one runs at a time.
set -euo pipefail
cd "$(dirname "$0")/.."
root=$PWD
model=models/smollm2-135m-instruct
log=.cache/setup.log
packages=(proto/python libs/runtime libs/cli services/env services/inference services/evaluator services/rollout
  services/trainer)

say() { echo "setup: $* (${SECONDS} s)"; }

# quietly COMMAND...: its output goes to the log, and is shown only if it fails.
quietly() {
  # Named before the command is forked, which would have a number of its own.
  local output=$log.$BASHPID
  if ! "$@" >"$output" 2>&1; then
    tail -n 40 "$output" >&2
    echo "setup: failed: $*" >&2
    return 1
  fi
}

install() { quietly env PIP_OPTIONS="-q --progress-bar off --no-compile" scripts/install.sh "$@"; }

# once NAME CONTENT COMMAND...: runs the command unless it ran to its end for the same content before.
once() {
  local stamp=.venv/setup-$1 content=$2
  shift 2
  if [ "$(cat "$stamp" 2>/dev/null)" != "$content" ]; then
    "$@"
    echo "$content" >"$stamp"
  fi
}

check_python() {
  "${PYTHON:-python3}" -c 'import sys; sys.exit(sys.version_info < (3, 11))' || {
    echo "setup: needs Python 3.11 or newer; name one with PYTHON=..." >&2
    exit 1
  }
}

install_locked() {
  say "installing torch and $(wc -l <requirements/local.lock) locked packages"
  install locked .venv requirements/local.lock
}

install_packages() {
  say "installing the packages of this repository"
  install editable .venv "${packages[@]}"
}

install_by_apt() {
  export DEBIAN_FRONTEND=noninteractive
  say "installing $* with apt-get"
  # An image that is new has no package lists, one that is old may have outdated ones.
  apt-get install -y -q --no-install-recommends "$@" >/dev/null 2>&1 && return
  quietly apt-get update -q
  quietly apt-get install -y -q --no-install-recommends "$@"
}

has_chromium() { [ -x /usr/lib/chromium/chromium ] || [ -e .venv/setup-chromium ]; }

has_libnuma() { grep -q 'libnuma\.so\.1' <(/sbin/ldconfig -p); }

# For machines where apt-get cannot help.
install_chromium() {
  say "downloading Chromium with Playwright"
  quietly .venv/bin/playwright install chromium || {
    echo "setup: Chromium is missing: install it (Debian: apt-get install chromium) and run make setup again" >&2
    return 1
  }
  touch .venv/setup-chromium
}

check_imports() {
  say "importing torch, vllm and deepspeed"
  DS_ACCELERATOR=cpu quietly .venv/bin/python -c 'import torch, vllm, deepspeed; from vllm import AsyncEngineArgs'
}

mkdir -p .cache
exec 9>.cache/setup.lock
flock 9
trap 'rm -f "$log".*' EXIT

apt=
if command -v apt-get >/dev/null && [ "$(id -u)" = 0 ]; then
  missing=()
  has_chromium || missing+=(chromium)
  has_libnuma || missing+=(libnuma1)
  if [ ${#missing[@]} -gt 0 ]; then
    install_by_apt "${missing[@]}" 9>&- &
    apt=$!
  fi
fi
[ -x .venv/bin/python ] || { check_python && "${PYTHON:-python3}" -m venv .venv; }
once locked "$(sha256sum <requirements/local.lock)" install_locked
# Console scripts carry the path, so a checkout that was moved installs its packages again.
once packages "$root $(cat "${packages[@]/%//pyproject.toml}" | sha256sum)" install_packages
[ -x /usr/lib/chromium/chromium-headless-shell ] || [ -z "$apt" ] || wait "$apt"
has_chromium || install_chromium
has_libnuma || echo "setup: libnuma is missing, and vLLM needs it: install it (Debian: apt-get install libnuma1)" >&2
if [ ! -e $model ]; then
  say "converting the default model"
  quietly .venv/bin/python -m webagent_inference.prepare --out $model
fi
once imports "$(sha256sum <requirements/local.lock)" check_imports
say "ready"
