#!/usr/bin/env bash
# Everything that must hold before a commit: lint, format, types, tests. Arguments go to pytest.
# Usage: test.sh [pytest arguments]
set -euo pipefail
root=$(cd "$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")/.." && pwd -P)
cd "$root"
./setup.sh --dev
status=0
.venv/bin/ruff check . || status=1
.venv/bin/ruff format --check . || status=1
.venv/bin/mypy || status=1
.venv/bin/python -m pytest -n 2 "$@" || status=$?
exit "$status"
