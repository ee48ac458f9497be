#!/usr/bin/env bash
# Throughput of Aceso's models with every method, and what the corrections change, as tables and figures.
# Usage: aceso_throughput.sh DATABASE OUTPUT [large_cluster.yaml] [flags of python -m third_party.aceso compare]; what OUTPUT has is kept, not asked again.
set -euo pipefail
source "$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")/aceso/compare.sh"

compared_and_drawn large_cluster "throughput physics" "$@"
