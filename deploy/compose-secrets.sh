#!/usr/bin/env bash
# Makes the secrets of docker-compose.yml in deploy/secrets, once: what is there stays, since Postgres and the stored signing
# secrets know it.
set -euo pipefail
dir=${1:-$(dirname "$0")/secrets}
mkdir -p "$dir"
# Compose mounts the files as they are, and each container's own user must be able to read them; the folder is yours alone.
chmod 700 "$dir"
umask 022

made=0
put() { # put FILE: standard input becomes the file, if it is not there yet
    if [ -s "$dir/$1" ]; then cat >/dev/null; return; fi
    cat >"$dir/$1.new"
    mv "$dir/$1.new" "$dir/$1"
    made=$((made + 1))
}
word() { head -c 64 /dev/urandom | base64 | tr -dc 'A-Za-z0-9' | head -c 32; }

for name in postgres owner app worker admin grafana; do
    put "$name-password" < <(word)
done
for role in owner app worker admin; do
    put "$role-url" < <(printf 'postgres://apipay_%s:%s@postgres:5432/apipay?sslmode=disable' "$role" "$(cat "$dir/$role-password")")
done

# A Tink key set with one AES-256-GCM key: field 3 of the key's message are its 32 bytes.
key_id=$(( ($(od -An -N4 -tu4 /dev/urandom) & 0x7fffffff) | 1 ))
put keyset.json < <(
    printf '{"primaryKeyId":%d,"key":[{"keyData":{"typeUrl":"type.googleapis.com/google.crypto.tink.AesGcmKey","value":"%s","keyMaterialType":"SYMMETRIC"},"status":"ENABLED","keyId":%d,"outputPrefixType":"TINK"}]}\n' \
        "$key_id" "$({ printf '\x1a\x20'; head -c 32 /dev/urandom; } | base64 | tr -d '\n')" "$key_id"
)

# admin-api knows the hash of each staff token; the tokens themselves are for you.
for role in viewer support admin; do
    put "admin-token-$role" < <(printf 'adm_%s_%s' "$role" "$(word)")
done
put admin-tokens.json < <(
    printf '['
    for role in viewer support admin; do
        [ "$role" = viewer ] || printf ','
        printf '{"name":"compose-%s","role":"%s","sha256":"%s"}' "$role" "$role" "$(sha256sum <"$dir/admin-token-$role" | cut -d' ' -f1)"
    done
    printf ']\n'
)
echo "compose-secrets: $made made, the others were there: $dir"
echo "staff tokens of the console: $dir/admin-token-viewer, -support, -admin; Grafana: admin, $dir/grafana-password"
