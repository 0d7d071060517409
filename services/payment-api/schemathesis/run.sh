#!/usr/bin/env bash
# Throws what the OpenAPI document allows, and what it does not, at a running stack, for the given number of seconds. Fails on
# every answer of 500 and above and on every answer that is not as the document says.
#
#   schemathesis/run.sh SECONDS
#
# The stack is one of its own, on ports that are free; it is removed at the end. Schemathesis is installed once, into .tools.
set -euo pipefail
seconds=${1:?seconds are missing}
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
failed=0
APIPAY_KEY=$key "$venv/bin/schemathesis" --config-file "$here/schemathesis.toml" run "$url/openapi.json" \
    --url "$url" --max-time "$seconds" || failed=$?

# Every answer that the service logged, by status: a run whose calls were all refused at the door would have passed, too.
python3 - "$APIPAY_DEV_DIR/logs" <<'PY' || failed=1
import collections, glob, json, sys
count = collections.Counter()
for name in glob.glob(sys.argv[1] + "/payment-api*"):
    for line in open(name, errors="replace"):
        if '"http.request"' in line:
            entry = json.loads(line)
            if entry["route"].startswith("/v1/"):
                count[entry["status"]] += 1
                if entry["status"] >= 500:
                    print(line, end="")
print("answers:", ", ".join(f"{status}: {n}" for status, n in sorted(count.items())))
if not (count[200] and count[201] and count[202] and count[204]) or any(status >= 500 for status in count):
    sys.exit("schemathesis: 5xx, or no success of a kind that the API has")
PY
exit "$failed"
