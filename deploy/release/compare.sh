#!/usr/bin/env bash
# Builds the release of HEAD in two clones at different paths and compares the results. The second build starts with an empty
# build cache, so it compiles everything again. usage: compare.sh [flags of deploy/release]
set -euo pipefail
cd "$(dirname "$0")/../.."
work=$(mktemp -d); trap 'chmod -R u+w "$work"; rm -rf "$work"' EXIT
for copy in a somewhere/else/b; do
  git clone -q . "$work/$copy"
  cache=$(${GO:-go} env GOCACHE); [ "$copy" = a ] || cache=$work/cache
  (cd "$work/$copy" && GOCACHE=$cache ${GO:-go} run ./deploy/release "$@" > /dev/null)
done
cd "$work"
diff a/bin/release/SHA256SUMS somewhere/else/b/bin/release/SHA256SUMS || { echo "the two builds differ"; exit 1; }
cat a/bin/release/SHA256SUMS
echo "both builds have the same $(wc -l < a/bin/release/SHA256SUMS) files"
