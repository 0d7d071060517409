#!/usr/bin/env bash
# Runs the conformance vectors on every SDK, or on the ones named (go python ...), and prints vector x language. The last
# lines are one per language, `LANGUAGE pass/total`. With APIPAY_STACK=path/to/stack.json of a running local stack, each SDK
# also pays there through a proxy that swallows the answer, and must end with one charge.
set -euo pipefail
cd "$(dirname "$0")/../.."
only=$(IFS=,; echo "$*")
mkdir -p bin
(cd pkg/sdk/conformance && GOWORK=off go build -o ../../../bin/conformance ./cmd/conformance)
exec bin/conformance -sdk pkg/sdk -only "$only" -stack "${APIPAY_STACK:-}"
