#!/usr/bin/env bash
# OPT-350M at sequence length 2048.
# Usage: opt.sh ["micro-batch sizes"] [phaze flags]
source "$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")/common.sh"
search "1 2 4" --model opt --sequence-length 2048 --max-tp 1 -- "$@"
