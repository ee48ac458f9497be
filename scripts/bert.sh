#!/usr/bin/env bash
# BERT-large at sequence length 512.
# Usage: bert.sh ["micro-batch sizes"] [phaze flags]
source "$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")/common.sh"
search "1 2 4 8" --model bertlarge --sequence-length 512 --max-tp 1 -- "$@"
