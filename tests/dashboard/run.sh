#!/usr/bin/env bash
# Checks the form and types of the dashboard, lints it and the TypeScript client, and tests it in Chromium. Needs the
# binary of the server in PROMETHEAN_BIN, and npm. Installs Chromium where it is missing, as root. Arguments are test files.
set -euo pipefail
: "${PROMETHEAN_BIN:?set it to the path of the binary promethean}"
PROMETHEAN_BIN=$(realpath "$PROMETHEAN_BIN")
export PROMETHEAN_BIN
cd "$(dirname "${BASH_SOURCE[0]}")"

if ! cmp -s package-lock.json node_modules/.installed; then
  npm ci --no-audit --no-fund --silent
  cp package-lock.json node_modules/.installed
fi
# The tests use the TypeScript client, which needs the package `ws` in Node 20.
[ -d ../../clients/typescript/node_modules/ws ] || npm ci --prefix ../../clients/typescript --no-audit --no-fund --silent
if [ -z "${CHROMIUM:-}" ] && ! command -v chromium chromium-browser google-chrome >/dev/null; then
  as_root=()
  [ "$(id -u)" -eq 0 ] || as_root=(sudo -n)
  "${as_root[@]}" apt-get update -qq || { echo "install Chromium, or set CHROMIUM to its path" >&2; exit 1; }
  "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends chromium
fi

npm run --silent check
[ $# -gt 0 ] || set -- *.test.js
node --test --test-reporter=spec --test-concurrency=2 "$@"
