# shellcheck shell=bash
# Sourced by the scripts beside it.
set -euo pipefail

root=$(cd "$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")/.." && pwd -P)
hbm_sizes_gib=(32 64 80)

# gives "SETTING|..." FLAGS...
# Whether one of the flags gives one of the settings, under its own name or with --set.
gives() {
    local settings=$1
    shift
    [[ " $* " =~ [[:space:]](--|--set[[:space:]=])($settings)[[:space:]=] ]]
}

# search DEFAULT_SIZES PHAZE_FLAGS... -- ["MICRO-BATCH SIZES"] [MORE_PHAZE_FLAGS...]
# Sets the environment up and searches the best accelerator and plan; what follows the sizes goes to phaze.py and wins over its
# defaults: those that would contradict it are left out.
search() {
    local sizes=$1 defaults=() flags=() word keep=true
    shift
    while [[ $1 != -- ]]; do
        defaults+=("$1")
        shift
    done
    shift
    if [[ $# -gt 0 && $1 != -* ]]; then
        sizes=$1
        shift
    fi
    for word in "${defaults[@]}" --micro-batch-size "$sizes" --hbm-size "${hbm_sizes_gib[@]}"; do
        case $word in
            --tp | --max-tp) gives 'tp|max[-_]tp|phaze_max_tmp_width' "$@" && keep=false || keep=true ;;
            --hbm-size) gives 'device' "$@" && keep=false || keep=true ;;
            --*) keep=true ;;
        esac
        if $keep; then flags+=("$word"); fi
    done
    "$root/setup.sh"
    "$root/.venv/bin/python" "$root/phaze.py" run_solver "${flags[@]}" "$@"
}
