#!/bin/sh
# Looks at the public pages in Chromium; the screenshots stay in the folder that is given.
set -eu
folder=$1
cd "$(dirname "$0")"
if ! command -v chromium >/dev/null && [ ! -x "${CHROMIUM-}" ]; then
    if [ "$(id -u)" != 0 ] || ! command -v apt-get >/dev/null; then
        echo "docs-check: install chromium, or name one in CHROMIUM" >&2
        exit 1
    fi
    apt-get update -q
    DEBIAN_FRONTEND=noninteractive apt-get install -qy --no-install-recommends chromium
fi
if ! cmp -s package-lock.json node_modules/.lock; then
    npm ci --silent --no-audit --no-fund
    cp package-lock.json node_modules/.lock
fi
cd ..
APIPAY_TEST_SCREENSHOTS=$folder go test -count=1 -tags browser -run TestPagesInBrowser .
