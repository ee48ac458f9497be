#!/usr/bin/env bash
# GPT-3 175B at sequence length 2048, tensor parallel widths 4 and 8.
# Usage: gpt3.sh ["micro-batch sizes"] [phaze flags]
source "$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")/common.sh"
search "1" --model megatrongpt3 --sequence-length 2048 --tp 4 8 -- "$@"
