#!/usr/bin/env bash
# Tests extraction with other versions of Python, torch and transformers: each in an environment of its own, removed behind it.
# Usage: matrix.sh [PYTHON:TORCH:TRANSFORMERS ...]     default: oldest and newest of the ranges in pyproject.toml, on each Python
#                                                      PHAZE_MATRIX_TESTS names other tests, PHAZE_MATRIX_GRAPHS=N makes one of N graphs
# A combination passes where the tests do, and its graphs are those of the first combination. torch takes gigabytes where pip has
# no CPU build of it.
set -euo pipefail
root=$(cd "$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")/.." && pwd -P)
combinations=(
    3.11:2.13.0:5.23.0
    3.11:2.12.0:5.23.0
    3.12:2.12.0:5.24.0
    3.13:2.14.1:5.24.0
)
if [[ $# -gt 0 ]]; then combinations=("$@"); fi
read -ra tests <<<"${PHAZE_MATRIX_TESTS:-tests/extraction tests/phaze/exports tests/conformance}"
every=${PHAZE_MATRIX_GRAPHS:-1}

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
wanted=$work/wanted # graphs of the first

# try_out PYTHON TORCH TRANSFORMERS
try_out() {
    local python=$work/venv/bin/python against=()
    "python$1" -m venv --clear "$work/venv" || return
    "$python" -m pip install --quiet --disable-pip-version-check "torch==$2" "transformers==$3" || return
    printf 'torch==%s\ntransformers==%s\n' "$2" "$3" >"$work/constraints"
    "$python" -m pip install --quiet --disable-pip-version-check --constraint "$work/constraints" \
        "$root[report,serve,runtime]" pytest pytest-xdist hypothesis || return
    "$python" -m pip uninstall --quiet --yes phaze # what is tested is the source tree
    cd "$root"
    if [[ -s $wanted ]]; then against=(--against "$wanted"); fi
    "$python" scripts/graph_hashes.py --every "$every" "${against[@]}" >"$work/graphs" || return
    [[ -s $wanted ]] || cp "$work/graphs" "$wanted"
    "$python" -m pytest -n 2 -q -o cache_dir="$work/cache" "${tests[@]}" || return
}

status=0
for combination in "${combinations[@]}"; do
    IFS=: read -r python torch transformers <<<"$combination"
    if (try_out "$python" "$torch" "$transformers") >"$work/log" 2>&1; then
        echo "$combination passed: $(tail -1 "$work/log")"
    else
        status=1
        echo "$combination failed:"
        tail -40 "$work/log"
    fi
done
exit "$status"
