#!/usr/bin/env bash
# Throws what the OpenAPI document allows, and what it does not, at a running stack, for the given number of seconds. Fails on
# every answer of 500 and above and on every answer that is not as the document says.
#
#   schemathesis/run.sh SECONDS
#
# The stack is one of its own, on ports that are free; it is removed at the end. Schemathesis is installed once, into .tools.
set -euo pipefail
seconds=${1:-120}
here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../../.." && pwd)
version=4.32.5
venv=$root/.tools/schemathesis-$version

if [ ! -x "$venv/bin/schemathesis" ]; then
    if ! python3 -c 'import venv, ensurepip' 2>/dev/null; then
        if [ "$(id -u)" != 0 ] || ! command -v apt-get >/dev/null; then
            echo "schemathesis: python3 with venv is missing" >&2
            exit 1
        fi
        apt-get update -q
        DEBIAN_FRONTEND=noninteractive apt-get install -qy --no-install-recommends python3-venv
    fi
    echo "installing schemathesis $version (once)"
    rm -rf "$venv"
    python3 -m venv "$venv"
    "$venv/bin/pip" install --quiet --disable-pip-version-check "schemathesis==$version"
fi

work=$(mktemp -d)
export APIPAY_DEV_DIR=$work/stack
devstack=$root/bin/devstack
trap '"$devstack" clean >/dev/null 2>&1 || true; rm -rf "$work"' EXIT
for try in 1 2 3 4 5; do
    export APIPAY_PORT_OFFSET=$((RANDOM % 60 * 100 + 7000))
    if "$devstack" up --detach >"$work/up.log" 2>&1; then
        break
    elif [ $try = 5 ] || ! grep -q 'is in use' "$work/up.log"; then
        cat "$work/up.log" >&2
        exit 1
    fi
done

read -r url key < <(python3 - "$APIPAY_DEV_DIR/stack.json" <<'PY'
import json, sys
stack = json.load(open(sys.argv[1]))
print(stack["urls"]["payment_api"], stack["demo"]["api_key_test"])
PY
)
cd "$work"
APIPAY_KEY=$key "$venv/bin/schemathesis" --config-file "$here/schemathesis.toml" run "$url/openapi.json" \
    --url "$url" --max-time "$seconds"
