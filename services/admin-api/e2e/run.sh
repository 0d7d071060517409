#!/usr/bin/env bash
# The console's browser tests over a stack of their own, on free ports. Installs what is missing.
set -euo pipefail
root=$(cd "$(dirname "$0")/../../.." && pwd)
here=$root/services/admin-api/e2e

missing=()
command -v chromium >/dev/null || missing+=(chromium)
command -v npm >/dev/null || missing+=(npm)
if [ ${#missing[@]} -gt 0 ]; then
    if [ "$(id -u)" != 0 ] || ! command -v apt-get >/dev/null; then
        echo "make test-console: install ${missing[*]}" >&2
        exit 1
    fi
    apt-get update -q
    DEBIAN_FRONTEND=noninteractive apt-get install -qy --no-install-recommends "${missing[@]}"
fi
export CHROMIUM=${CHROMIUM:-$(command -v chromium)}
[ -e "$here/node_modules/.package-lock.json" ] && [ "$here/node_modules/.package-lock.json" -nt "$here/package-lock.json" ] ||
    npm ci --prefix "$here" --no-audit --no-fund --loglevel=error

export APIPAY_DEV_DIR
APIPAY_DEV_DIR=$(mktemp -d "${TMPDIR:-/tmp}/apipay-console.XXXXXX")
# Three attempts within two seconds, so that a delivery fails for good while a test waits.
export APIPAY_WEBHOOK_RETRY_SCHEDULE=1s,1s
trap '"$root/bin/devstack" clean >/dev/null 2>&1 || true; rm -rf "$APIPAY_DEV_DIR"' EXIT
for try in 1 2 3 4 5; do
    export APIPAY_PORT_OFFSET=$((100 * (RANDOM % 120 + 5)))
    if "$root/bin/devstack" up --detach; then break; fi
    [ "$try" != 5 ] || exit 1
done
cd "$here"
exec_status=0
node --test --test-reporter=spec --test-timeout=180000 console.test.mjs || exec_status=$?
[ "$exec_status" = 0 ] || grep -v INFO "$APIPAY_DEV_DIR/logs/admin-api.log" | tail -n 40 >&2
exit "$exec_status"
