# shellcheck shell=bash
# Sourced by aceso_*.sh above it.
source "$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")/../../common.sh"

# compared_and_drawn CASES "FIGURES" DATABASE OUTPUT [CASES.yaml] [FLAGS...]
compared_and_drawn() {
    local cases=$root/scripts/studies/aceso/$1.yaml figures=$2 database output
    shift 2
    if [[ $# -lt 2 || $1 == -* || $2 == -* ]]; then
        echo "usage: $(basename "$0") DATABASE OUTPUT [CASES.yaml] [flags of python -m third_party.aceso compare]" >&2
        exit 2
    fi
    database=$1 output=$2
    shift 2
    if [[ $# -gt 0 && $1 != -* ]]; then
        cases=$1
        shift
    fi
    "$root/setup.sh"
    PYTHONPATH=$root "$root/.venv/bin/python" -m third_party.aceso compare "$cases" --database "$database" --output "$output" "$@"
    # shellcheck disable=SC2086 # names of figures, several words
    "$root/.venv/bin/python" "$root/scripts/aceso_figures.py" "$output" $figures
}
