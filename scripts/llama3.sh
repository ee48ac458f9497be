#!/usr/bin/env bash
# Llama-3 70B at sequence length 8192.
# Usage: llama3.sh ["micro-batch sizes"] [phaze flags]
source "$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")/common.sh"
search "1" --model llama3-70b --sequence-length 8192 --max-tp 8 -- "$@"
