#!/usr/bin/env bash
# Fetches the package bfcl-eval (Apache-2.0) from the Python package index and unpacks it, without what it depends on. Needs pip.
#
# usage: bfcl.sh FOLDER
set -euo pipefail

[ ! -d "$1/bfcl_eval" ] || { echo "bfcl-eval is in $1"; exit 0; }
mkdir -p "$1"
python3 -m pip download --no-deps --quiet --disable-pip-version-check --only-binary :all: --dest "$1" bfcl-eval==2026.3.23
# Python's own: unzip is not everywhere.
python3 -m zipfile -e "$1"/bfcl_eval-*.whl "$1"
rm "$1"/bfcl_eval-*.whl
python3 -c 'import mpmath' || echo "note: the package needs mpmath: pip install mpmath" >&2
echo "bfcl-eval is in $1"
