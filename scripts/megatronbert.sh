#!/usr/bin/env bash
# Megatron-BERT at sequence length 512.
# Usage: megatronbert.sh ["micro-batch sizes"] [phaze flags]
source "$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")/common.sh"
search "1 2 4 8" --model megatronbert --sequence-length 512 --max-tp 1 -- "$@"
