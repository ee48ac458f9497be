#!/usr/bin/env bash
# GPT2-XL at sequence length 1024.
# Usage: gpt2.sh ["micro-batch sizes"] [phaze flags]
source "$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")/common.sh"
search "1 2 4" --model gpt2 --sequence-length 1024 --max-tp 1 -- "$@"
