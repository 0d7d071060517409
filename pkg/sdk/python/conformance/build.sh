#!/usr/bin/env bash
# Makes .venv with the SDK as it would be installed: from its wheel; then the linter, the types and the tests of its own.
set -euo pipefail
cd "$(dirname "$0")/.."
python=${PYTHON:-python3}
if ! "$python" -c 'import sys; sys.exit(sys.version_info < (3, 10))'; then
  echo "Python 3.10 or later is needed; PYTHON names another one" >&2
  exit 1
fi
[ -x .venv/bin/python ] || "$python" -m venv .venv
.venv/bin/python -m pip install --quiet --disable-pip-version-check build hatchling mypy pytest ruff
rm -rf dist
.venv/bin/python -m build --no-isolation --wheel --outdir dist . >/dev/null
.venv/bin/python -m pip install --quiet --disable-pip-version-check --force-reinstall --no-deps dist/*.whl
.venv/bin/python -m pip install --quiet --disable-pip-version-check dist/*.whl
.venv/bin/python -m ruff check --quiet . >&2
.venv/bin/python -m mypy >&2
.venv/bin/python -m pytest -q >&2
