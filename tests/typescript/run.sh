#!/usr/bin/env bash
# Checks that the TypeScript that `promethean generate` is known to write compiles, and that it means what it should.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
golden=$here/../../fixtures/schema/generate/golden
cache=${CARGO_TARGET_DIR:-$here/../../target}/typescript

if ! cmp -s "$here/package.json" "$cache/package.json"; then
  rm -rf "$cache"
  mkdir -p "$cache"
  cp "$here/package.json" "$cache/"
  if ! npm install --prefix "$cache" --ignore-scripts --no-audit --no-fund --silent; then
    # A broken installation is not to be taken for a good one the next time.
    rm -f "$cache/package.json"
    exit 1
  fi
fi

"$cache/node_modules/.bin/tsc" --strict --noEmit --exactOptionalPropertyTypes --noUnusedLocals --target es2022 \
  --module preserve "$golden"/*.ts "$here"/*.ts
