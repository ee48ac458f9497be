#!/usr/bin/env bash
# Mixtral 8x7B at sequence length 4096.
# Usage: mixtral.sh ["micro-batch sizes"] [phaze flags]
source "$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")/common.sh"
search "1" --model mixtral-8x7b --sequence-length 4096 --max-tp 8 -- "$@"
