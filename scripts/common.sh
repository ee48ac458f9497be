# shellcheck shell=bash
# Sourced by the scripts beside it.
set -euo pipefail

root=$(cd "$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")/.." && pwd -P)
hbm_sizes_gib=(32 64 80)

# search DEFAULT_SIZES PHAZE_FLAGS... -- ["MICRO-BATCH SIZES"] [MORE_PHAZE_FLAGS...]
# Sets the environment up and searches the best accelerator and plan; what follows the sizes goes to phaze.py and wins over its defaults.
search() {
    local sizes=$1 flags=()
    shift
    while [[ $1 != -- ]]; do
        flags+=("$1")
        shift
    done
    shift
    if [[ $# -gt 0 && $1 != -* ]]; then
        sizes=$1
        shift
    fi
    "$root/setup.sh"
    "$root/.venv/bin/python" "$root/phaze.py" run_solver "${flags[@]}" --micro-batch-size "$sizes" --hbm-size "${hbm_sizes_gib[@]}" "$@"
}
