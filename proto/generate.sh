#!/bin/sh
# Formats, lints, refuses breaking changes, generates the Go code and moves the baseline forward.
#
#   proto/generate.sh           write what changed
#   proto/generate.sh --check   write nothing; fail on anything that is not committed as it should be
#
# buf is installed once into ../.tools/bin; protoc-gen-go is a tool of go.mod. With both in place no network is needed.
set -eu
cd "$(dirname "$0")"

buf_version=1.75.0
bin=$(cd .. && pwd)/.tools/bin
buf=$bin/buf
export GOWORK=off

case ${1-} in
'' | --check) ;;
*)
    echo "usage: proto/generate.sh [--check]" >&2
    exit 2
    ;;
esac

if [ "$("$buf" --version 2>/dev/null)" != "$buf_version" ]; then
    mkdir -p "$bin"
    GOBIN=$bin go install "github.com/bufbuild/buf/cmd/buf@v$buf_version"
fi

if [ "${1-}" = --check ]; then
    "$buf" format --diff --exit-code
    "$buf" lint
    "$buf" breaking --against baseline.binpb
    tmp=$(mktemp -d)
    trap 'rm -rf "$tmp"' EXIT INT TERM
    "$buf" generate --output "$tmp"
    # Both ways: also a generated file whose .proto is gone is stale.
    diff -r --exclude='*.proto' apipay "$tmp/apipay"
    "$buf" build --exclude-source-info --output "$tmp/baseline.binpb"
    cmp baseline.binpb "$tmp/baseline.binpb"
    exit 0
fi

"$buf" format --write
"$buf" lint
if [ -e baseline.binpb ]; then
    "$buf" breaking --against baseline.binpb
fi
find apipay -name '*.pb.go' -delete
"$buf" generate
# Only after the comparison: a field is guarded from the commit that brings it.
"$buf" build --exclude-source-info --output baseline.binpb
