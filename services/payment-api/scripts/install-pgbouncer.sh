#!/usr/bin/env bash
# Installs Debian's pgbouncer for the tests; without starting its service.
set -euo pipefail
if [ "$(id -u)" != 0 ] || ! command -v apt-get >/dev/null; then
    echo "not root, or no apt-get" >&2
    exit 1
fi
export DEBIAN_FRONTEND=noninteractive RUNLEVEL=1
apt-get update -q
apt-get install -qy --no-install-recommends pgbouncer
