#!/usr/bin/env bash
# Llama-2 7B at sequence length 4096.
# Usage: llama2.sh ["micro-batch sizes"] [phaze flags]
source "$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")/common.sh"
search "1 2" --model llama2 --sequence-length 4096 --max-tp 1 -- "$@"
