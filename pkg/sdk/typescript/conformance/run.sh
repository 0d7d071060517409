#!/usr/bin/env bash
# The runner of pkg/sdk/conformance.
exec node "$(dirname "$0")/runner.mjs" "$@"
