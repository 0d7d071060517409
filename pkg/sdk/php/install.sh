#!/usr/bin/env bash
# Installs what the SDK and its conformance runner need and is missing, from Debian's packages.
set -euo pipefail
missing=()
for package in php-cli php-curl php-mbstring php-xml composer php-nyholm-psr7 php-psr-http-client php-psr-http-factory php-psr-http-message; do
  dpkg -s "$package" >/dev/null 2>&1 || missing+=("$package")
done
if [ ${#missing[@]} -eq 0 ]; then
  exit 0
fi
sudo=()
if [ "$(id -u)" -ne 0 ]; then
  sudo=(sudo)
fi
"${sudo[@]}" apt-get update -qq
DEBIAN_FRONTEND=noninteractive "${sudo[@]}" apt-get install -y -qq --no-install-recommends "${missing[@]}"
