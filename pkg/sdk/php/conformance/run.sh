#!/usr/bin/env bash
# Starts the conformance runner.
set -euo pipefail
exec php -d memory_limit=512M -d display_errors=stderr "$(dirname "$0")/runner.php"
