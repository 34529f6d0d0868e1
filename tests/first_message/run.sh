#!/usr/bin/env bash
# The first three commands of a newcomer, in an empty folder, without a home directory or any variable: start a server,
# publish, see the event. Fails if the event is not seen within a minute. Needs the binary of the server in PROMETHEAN_BIN.
set -euo pipefail
: "${PROMETHEAN_BIN:?set it to the path of the binary promethean}"
bin=$(realpath "$PROMETHEAN_BIN")
folder=$(mktemp -d)
cd "$folder"

promethean() { env -i PATH=/usr/bin:/bin "$bin" "$@"; }

began=$SECONDS
env -i PATH=/usr/bin:/bin "$bin" serve 2>serve.log &
server=$!
trap 'kill "$server" 2>/dev/null; wait "$server" 2>/dev/null; rm -rf "$folder"' EXIT
# The last line of the start says that the server can be used.
sed '/Ctrl-C stops the server/q' < <(tail --pid="$server" -n +1 -f serve.log) >/dev/null

promethean pub hello '{"x": 1}'
seen=$(promethean tail hello)
case $seen in
  *'"payload":{"x":1}'*) ;;
  *) printf 'the event was not seen: %s\n' "$seen" >&2; exit 1 ;;
esac
took=$((SECONDS - began))
[ "$took" -lt 60 ] || { printf 'the first message took %d s\n' "$took" >&2; exit 1; }
printf 'first message seen after 3 commands and %d s\n' "$took"
