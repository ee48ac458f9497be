#!/usr/bin/env bash
# What every method costs on Aceso's models, as tables and a figure.
# Usage: aceso_search_cost.sh DATABASE OUTPUT [large_cluster.yaml] [flags of python -m third_party.aceso compare]; what OUTPUT has is kept, not asked again.
set -euo pipefail
source "$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")/aceso/compare.sh"

compared_and_drawn large_cluster "search-cost" "$@"
