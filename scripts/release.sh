#!/usr/bin/env bash
# Tag the version that phaze/__init__.py states, when the tree is clean, everything that names the version agrees and the tests pass.
# Usage: release.sh
set -euo pipefail
root=$(cd "$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")/.." && pwd -P)
cd "$root"
version=$(sed -n 's/^VERSION = "\(.*\)"/\1/p' phaze_common/version.py)
[ -z "$(git status --porcelain)" ] || { echo "the tree has changes; commit them first" >&2; exit 2; }
grep -q "^## \[$version\]" CHANGELOG.md || { echo "CHANGELOG.md has no section [$version]; write it first" >&2; exit 2; }
grep -q "^version: $version\$" CITATION.cff || { echo "CITATION.cff is of another version than $version; correct it" >&2; exit 2; }
grep -q "\"version\": \"$version\"" scripts/benchmark_history.jsonl || { echo "scripts/benchmark_history.jsonl has no line of $version; run scripts/benchmark.py --record" >&2; exit 2; }
./scripts/test.sh
git tag -a "v$version" -m "phaze $version"
echo "tagged v$version; push it with: git push origin v$version"
