#!/usr/bin/env bash
# The three Megatron GPT-2 configurations at sequence length 1024, each up to the tensor parallel width its published runs used.
# Usage: megatrongpt2.sh ["micro-batch sizes"] [phaze flags]
source "$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")/common.sh"
search "1 2 4" --model megatrongpt2-xl --sequence-length 1024 --max-tp 1 -- "$@"
search "1 2 4" --model megatrongpt2-54 --sequence-length 1024 --max-tp 4 -- "$@"
search "1 2 4" --model megatrongpt2-72 --sequence-length 1024 --max-tp 8 -- "$@"
