#!/usr/bin/env bash
# Checks /openapi.json and what it says of a running server: run.sh http://127.0.0.1:8090
# SEED=7 EXAMPLES=100 tests/openapi/run.sh … draws other requests, and more of them.
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

# A fixed seed by default, so that a run fails for what was changed and not for what was drawn.
seed=${SEED:-1}
examples=${EXAMPLES:-5}

# The tool leaves what it learned where it runs.
cp "$here/schemathesis.toml" "$here/hooks.py" "$venv/"
cd "$venv"
common=(run "$base/openapi.json" --checks all --phases coverage,fuzzing --workers 1 --seed "$seed" --no-color --warnings off)
# A stream has no end, so only what must be refused is sent to it.
timeout $((120 + 12 * examples)) "$venv/bin/st" --config-file schemathesis.toml "${common[@]}" \
  --max-examples "$examples" --exclude-path '/stream/{topic}'
timeout $((60 + 2 * examples)) "$venv/bin/st" --config-file schemathesis.toml "${common[@]}" \
  --max-examples "$examples" --include-path '/stream/{topic}' --mode negative
