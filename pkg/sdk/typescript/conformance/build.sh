#!/usr/bin/env bash
# Builds dist/ with the compiler of node_modules, which is installed from the lock file, and runs the tests of its own.
set -euo pipefail
cd "$(dirname "$0")/.."
if ! node -e 'process.exit(Number(process.versions.node.split(".")[0]) < 18 ? 1 : 0)'; then
  echo "Node 18 or later is needed" >&2
  exit 1
fi
npm ci --no-audit --no-fund --loglevel=error >&2
npm run -s build >&2
npm test --silent >&2
