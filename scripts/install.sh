#!/usr/bin/env bash
# Installs into a virtual environment. This is the one way: make setup, the images and the tests of the locks all call it.
#
#   scripts/install.sh locked VENV LOCK             the packages that a lock pins
#   scripts/install.sh packages VENV DIRECTORY...   packages of this repository, as wheels
#   scripts/install.sh editable VENV DIRECTORY...   the same, as links to their sources
#
# PIP_OPTIONS: more options for pip. TORCH_INDEX: an index that has the wanted build of torch, for images; elsewhere pip
# takes a CPU build where it finds one, else PyPI's CUDA build of the same version with what that needs.
set -euo pipefail

pip() {
  # shellcheck disable=SC2086  # several options
  "$venv/bin/python" -m pip --disable-pip-version-check install ${PIP_OPTIONS:-} "$@"
}

locked() {
  local lock=$1 torch
  torch=$(grep -m1 '^torch==' "$lock" || true)
  if [ -n "$torch" ]; then
    # Torch first, with its own dependencies: a lock does not hold those of a CUDA build.
    pip --constraint "$lock" ${TORCH_INDEX:+--extra-index-url "$TORCH_INDEX"} "$torch"
  fi
  pip --no-deps -r "$lock"
}

packages() {
  # What builds them must be there, since nothing is fetched for it.
  "$venv/bin/python" -c 'import sys, setuptools; sys.exit(int(setuptools.__version__.split(".")[0]) < 77)' ||
    pip setuptools==81.0.0
  pip --no-deps --no-build-isolation "$@"
}

mode=$1 venv=$2
shift 2
case "$mode" in
  locked) locked "$1" ;;
  packages) packages "$@" ;;
  editable)
    links=()
    for directory in "$@"; do links+=(-e "$directory"); done
    packages "${links[@]}"
    ;;
  *) echo "usage: scripts/install.sh locked|packages|editable VENV ..." >&2 && exit 2 ;;
esac
