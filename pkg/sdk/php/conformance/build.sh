#!/usr/bin/env bash
# Installs what is missing, and checks the package, each file, and the client with another PSR-18 client.
set -euo pipefail
cd "$(dirname "$0")/.."
./install.sh >&2
COMPOSER_ALLOW_SUPERUSER=1 composer validate --strict --no-interaction >&2
find . -name '*.php' -not -path './vendor/*' -print0 | xargs -0 -n1 php -l 2>&1 | { ! grep -v "^No syntax errors" >&2; }
php -d memory_limit=256M tests/psr18.php >&2
