#!/usr/bin/env bash
# Run once by the image's entry point, as superuser, when the data folder is new: roles and schema from bootstrap.sql, and the
# roles' passwords from their secret files.
set -euo pipefail
secrets=${SECRETS_DIR:-/run/secrets}
bootstrap=${BOOTSTRAP_SQL:-/etc/apipay/bootstrap.sql}

psql --no-psqlrc --set=ON_ERROR_STOP=1 --quiet --username="$POSTGRES_USER" --dbname="$POSTGRES_DB" --file="$bootstrap"
for role in owner app worker admin; do
    # psql reads the file itself, and quotes what it holds: the password is on no command line and in no log.
    psql --no-psqlrc --set=ON_ERROR_STOP=1 --quiet --username="$POSTGRES_USER" --dbname="$POSTGRES_DB" <<SQL
\set password \`cat '$secrets/$role-password'\`
SET log_statement = 'none';
ALTER ROLE apipay_$role PASSWORD :'password';
SQL
done
