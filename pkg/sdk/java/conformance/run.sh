#!/usr/bin/env bash
# Starts the conformance runner; the argument is sync or async.
set -euo pipefail
cd "$(dirname "$0")/.."
exec ${JAVA:-java} ${JAVA_TEST_OPTIONS:-} -Xmx512m -XX:TieredStopAtLevel=1 -XX:+UseSerialGC -cp "target/classes:target/conformance:target/lib/*" io.apipay.Runner "$@"
