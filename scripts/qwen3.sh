#!/usr/bin/env bash
# Qwen3 8B at sequence length 4096.
# Usage: qwen3.sh ["micro-batch sizes"] [phaze flags]
source "$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")/common.sh"
search "1 2" --model qwen3-8b --sequence-length 4096 --max-tp 4 -- "$@"
