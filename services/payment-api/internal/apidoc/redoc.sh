#!/bin/sh
# Fetches the viewer of /docs again: Redoc's bundle, without the one picture that it takes from another host. Change the
# name under which routes.go and docs.html serve it when the content changes: browsers keep it for a year.
set -eu
cd "$(dirname "$0")/static"
version=2.5.4
logo='e?n.createElement("img",{alt:"redocly logo",onError:()=>t(!1),src:"https:\/\/cdn.redoc.ly\/redoc\/logo-mini.svg"}):null'

tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT INT TERM
npm pack --silent --pack-destination "$tmp" "redoc@$version"
tar -xzf "$tmp/redoc-$version.tgz" -C "$tmp"
sed "s/$logo/null/" "$tmp/package/bundles/redoc.standalone.js" >redoc.standalone.js
if grep -q cdn.redoc.ly redoc.standalone.js; then
    echo "redoc.sh: the bundle still asks for the logo" >&2
    exit 1
fi
