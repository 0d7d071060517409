#!/usr/bin/env bash
# Builds the SDK's jar, sources and javadoc with its tests, and the conformance runner beside them in target/.
set -euo pipefail
cd "$(dirname "$0")/.."
./install.sh >&2
mvn -q -B -ntp package >&2
rm -rf target/conformance
mkdir -p target/conformance
javac --release 17 -Xlint:all -Xlint:-classfile -Werror -d target/conformance -cp "target/classes:target/lib/*" conformance/*.java >&2
