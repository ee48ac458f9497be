#!/usr/bin/env bash
# Throughput and search cost of every method over GPTs of 8 to 1,024 layers, as tables and figures.
# Usage: aceso_layers.sh DATABASE OUTPUT [layers.yaml] [flags of python -m third_party.aceso compare]; what OUTPUT has is kept, not asked again.
set -euo pipefail
source "$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")/aceso/compare.sh"

compared_and_drawn layers "layers" "$@"
