#!/usr/bin/env bash
# Checks /openapi.json and what it says of a running server: run.sh http://127.0.0.1:8090
# Everything that is generated is published, set and deleted there, so use a server that holds nothing of value.
set -euo pipefail
base=${1:?give the address of a server, such as http://127.0.0.1:8090}
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
venv=${CARGO_TARGET_DIR:-$here/../../target}/openapi-venv

if ! cmp -s "$here/requirements.txt" "$venv/requirements.txt"; then
  rm -rf "$venv"
  python3 -m venv "$venv"
  "$venv/bin/pip" install --quiet --disable-pip-version-check -r "$here/requirements.txt"
  cp "$here/requirements.txt" "$venv/"
fi

venv=$(cd "$venv" && pwd)
document=$venv/openapi.json
curl --silent --show-error --fail "$base/openapi.json" --output "$document"
"$venv/bin/openapi-spec-validator" "$document"

# The tool leaves what it learned where it runs.
cp "$here/schemathesis.toml" "$here/hooks.py" "$venv/"
cd "$venv"
common=(run "$base/openapi.json" --checks all --phases coverage,fuzzing --workers 1 --no-color --warnings off)
# A stream has no end, so only what must be refused is sent to it.
timeout 180 "$venv/bin/st" --config-file schemathesis.toml "${common[@]}" \
  --max-examples "${EXAMPLES:-5}" --exclude-path '/stream/{topic}'
timeout 60 "$venv/bin/st" --config-file schemathesis.toml "${common[@]}" \
  --max-examples "${EXAMPLES:-5}" --include-path '/stream/{topic}' --mode negative
