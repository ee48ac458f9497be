#!/usr/bin/env bash
# The whole loop on this machine: profiles a model's operators, searches the best plan for so many processes, trains it, compares
# what was measured with what was predicted, and draws one page of all four.
# Usage: profile_search_train.sh [MODEL] [PROCESSES] [flags]     (default: a small GPT, 4 processes)
#   --sequence-length N         tokens per sample (default 64; of models that read images their own)
#   --tp "N ..."                tensor parallel widths (default 1)
#   --micro-batch-size "N ..."  samples per micro-batch (default "1 2 4")
#   --global-batch-size N       samples per step (default 4 for each process)
#   --steps N                   training steps, at least 3 (default 10)
#   --cap S                     seconds to repeat one operator at most (default 0.25)
#   --output DIR                where all of it goes (default Solver/output/trained-MODEL-PROCESSES)
#   --search "FLAGS"            more flags of phaze run_solver
#   --train "FLAGS"             more flags of phaze train
source "$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")/common.sh"

usage() {
    sed -n '4,13s/^# //p' "${BASH_SOURCE[0]}" >&2
    exit 2
}

model="gpt:layers=4,hidden=128,heads=4,vocabulary=2048" processes=4
length="" widths=1 sizes="1 2 4" batch="" steps=10 cap=0.25 output="" search_flags="" train_flags=""
if [[ $# -gt 0 && $1 != -* ]]; then
    model=$1
    shift
fi
if [[ $# -gt 0 && $1 != -* ]]; then
    processes=$1
    shift
fi
[[ $processes =~ ^[1-9][0-9]{0,2}$ ]] || { echo "PROCESSES is '$processes'; give a whole number of at least 1" >&2 && exit 2; }
while [[ $# -gt 0 ]]; do
    [[ $# -ge 2 ]] || usage
    case $1 in
        --sequence-length) length=$2 ;;
        --tp) widths=$2 ;;
        --micro-batch-size) sizes=$2 ;;
        --global-batch-size) batch=$2 ;;
        --steps) steps=$2 ;;
        --cap) cap=$2 ;;
        --output) output=$2 ;;
        --search) search_flags=$2 ;;
        --train) train_flags=$2 ;;
        *) usage ;;
    esac
    shift 2
done
batch=${batch:-$((4 * processes))}
output=${output:-$root/Solver/output/trained-$(tr -c '[:alnum:]\n' '-' <<<"$model")-$processes}
read -ra widths <<<"${widths//,/ }"
read -ra sizes <<<"${sizes//,/ }"
read -ra search_flags <<<"$search_flags"
read -ra train_flags <<<"$train_flags"
case $model in *resnet* | vit*) ;; *) length=${length:-64} ;; esac
tokens=()
if [[ -n $length ]]; then tokens=(--sequence-length "$length"); fi
groups=()
for size in 2 4 8; do
    if [[ $size -le $processes ]]; then groups+=("$size"); fi
done

"$root/setup.sh"
phaze() { "$root/.venv/bin/python" "$root/phaze.py" "$@"; }
of_model=(--model "$model" "${tokens[@]}" --tp "${widths[@]}" --micro-batch-size "${sizes[@]}" --sequence-parallel false)
phaze profile "${of_model[@]}" --processes "${groups[@]}" --devices "$processes" --cap "$cap" --output "$output/profile"
# what a training of this machine cannot run is not searched: stages of several chunks, sequences cut over processes
phaze run_solver "${of_model[@]}" --device "$output/profile" --devices "$processes" --global-batch-size "$batch" \
    --interleave 1 --layout 1d --output "$output/run" "${search_flags[@]}"
status=0 # of a check that failed the page tells as well
phaze train --plan "$output/run/best.json" --processes "$processes" --steps "$steps" --check "${train_flags[@]}" || status=$?
[[ $status -le 1 && -f $output/run/train/train.json ]] || exit "$status"
phaze report "$output/run" --output "$output/report.html"
exit "$status"
