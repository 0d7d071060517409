#!/usr/bin/env bash
# Installs the verifiers that merchants use, at the versions pinned here, and holds real deliveries against them.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../../.." && pwd)

# One folder per set of versions, made whole or not at all.
pinned=$(cat "$here/package-lock.json" "$here/requirements.txt" | sha256sum | cut -c1-16)
tools=$root/.tools/webhook-verifiers-$pinned
if [ ! -e "$tools/complete" ]; then
    for tool in node npm python3; do
        if ! command -v "$tool" >/dev/null; then
            echo "make test-verifiers: $tool is missing" >&2
            exit 1
        fi
    done
    rm -rf "$tools"
    mkdir -p "$tools"
    cp "$here/package.json" "$here/package-lock.json" "$tools/"
    (cd "$tools" && npm ci --silent --no-audit --no-fund --ignore-scripts)
    python3 -m venv "$tools/venv"
    "$tools/venv/bin/pip" install --quiet --disable-pip-version-check -r "$here/requirements.txt"
    touch "$tools/complete"
fi
export VERIFIERS_DIR=$tools
cd "$root"
exec bin/devstack test-env -- go test -count=1 -timeout 2m -v -run '^TestVerifiers' ./services/webhook-dispatcher/internal/dispatch
