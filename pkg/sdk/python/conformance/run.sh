#!/usr/bin/env bash
# The runner of pkg/sdk/conformance: run.sh sync|async
exec "$(dirname "$0")/../.venv/bin/python" "$(dirname "$0")/runner.py" "$@"
