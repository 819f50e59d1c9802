#!/bin/sh
# Installs what checks the API's description, pinned: a linter and two generators of clients.
# usage: install.sh FOLDER
set -eu
here=$(CDPATH= cd -- "$(dirname -- "$0")" && pwd)
mkdir -p "$1"
folder=$(cd "$1" && pwd)/openapi
. "$here/../rig/npm-ci.sh"

# In an environment of its own: the generator wants an older typer than Outrider has.
if ! cmp -s "$here/requirements.txt" "$folder/ok-requirements.txt"; then
    rm -rf "$folder/venv"
    python3 -m venv "$folder/venv"
    "$folder/venv/bin/python" -m pip install --quiet --disable-pip-version-check \
        --requirement "$here/requirements.txt"
    cp "$here/requirements.txt" "$folder/ok-requirements.txt"
fi
