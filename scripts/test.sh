#!/usr/bin/env bash
# Everything that must hold before a commit: lint, format, types, tests. Arguments go to pytest and win over those below.
# Usage: test.sh [pytest arguments]     --thorough: more widths and examples, new ones each time; -n 8: on eight cores;
#                                       -m "not kill and not browser and not ray": without those (markers: pyproject.toml)
set -euo pipefail
root=$(cd "$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")/.." && pwd -P)
cd "$root"
./setup.sh --dev
status=0
trial=$(mktemp -d)
trap 'rm -rf "$trial"' EXIT
# Small searches compile the inner loops, where they are not yet, while the other core looks at the code.
search() { PYTHONDONTWRITEBYTECODE='' .venv/bin/python phaze.py run_solver --model bertbase --sequence-length 64 --quiet "$@" >/dev/null; }
devices=(--device a100_80gb --devices 2 --tp 1 --micro-batch-size 1 --global-batch-size 4 --heterogeneous)
{ search --output "$trial/chips" && search "${devices[@]}" --output "$trial/devices"; } &
.venv/bin/ruff check . || status=1
.venv/bin/ruff format --check . || status=1
.venv/bin/mypy || status=1
wait $! || status=1
.venv/bin/python -m pytest -n 2 --dist loadfile --no-loadscope-reorder "$@" || status=$?
exit "$status"
