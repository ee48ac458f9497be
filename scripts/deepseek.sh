#!/usr/bin/env bash
# DeepSeek-V3 671B at sequence length 4096.
# Usage: deepseek.sh ["micro-batch sizes"] [phaze flags]
source "$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")/common.sh"
search "1" --model deepseek-v3 --sequence-length 4096 --max-tp 8 -- "$@"
