#!/usr/bin/env bash
# T5-large with 512 tokens in encoder and decoder.
# Usage: t5.sh ["micro-batch sizes"] [phaze flags]
source "$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")/common.sh"
search "1 2 4 8" --model t5-large --sequence-length 512 --max-tp 1 -- "$@"
