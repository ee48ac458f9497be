#!/usr/bin/env bash
# Every micro-batch size of a model with every HBM size, one search each, on all cores.
# Usage: sweep_microbatch.sh MODEL ["micro-batch sizes"] [flags of phaze sweep]
source "$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")/common.sh"

if [[ $# -eq 0 || $1 == -* ]]; then
    echo 'usage: sweep_microbatch.sh MODEL ["micro-batch sizes"] [flags of phaze sweep]' >&2
    exit 2
fi
model=$1 sizes="1 2 4 8"
shift
if [[ $# -gt 0 && $1 != -* ]]; then
    sizes=$1
    shift
fi
"$root/setup.sh"
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
printf 'micro_batch_size: [%s]\nhbm_size: [%s]\n' "$(tr -s ' ,' ',' <<<"$sizes")" "$(IFS=,; echo "${hbm_sizes_gib[*]}")" >"$folder/microbatch.yaml"
"$root/.venv/bin/python" "$root/phaze.py" sweep "$folder/microbatch.yaml" --set "model=$model" "$@"
