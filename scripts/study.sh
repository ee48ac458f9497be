#!/usr/bin/env bash
# Runs one of the studies beside it (scripts/studies) and draws its page; a study that was interrupted goes on where it was.
# Usage: study.sh NAME [flags of phaze sweep]     without a name: lists them
source "$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")/common.sh"

studies=$root/scripts/studies
if [[ $# -eq 0 || ! -f $studies/$1.yaml ]]; then
    echo "usage: study.sh NAME [flags of phaze sweep]; the studies are: $(basename -s .yaml -a "$studies"/*.yaml | paste -sd' ')" >&2
    exit 2
fi
name=$1
shift
"$root/setup.sh"
answer=$(mktemp)
trap 'rm -f "$answer"' EXIT
status=0 # of a sweep of which points failed or were impossible the page is drawn all the same
"$root/.venv/bin/python" "$root/phaze.py" sweep "$studies/$name.yaml" "$@" --format json >"$answer" || status=$?
folder=$("$root/.venv/bin/python" -c 'import json, sys; print(json.load(sys.stdin)["folder"])' <"$answer" 2>/dev/null) || exit "$status"
"$root/.venv/bin/python" "$root/phaze.py" report "$folder"
exit "$status"
