#!/bin/sh
# Installs what the pages of the browser tests use, pinned: xterm.js.
# usage: install.sh FOLDER
set -eu
here=$(CDPATH= cd -- "$(dirname -- "$0")" && pwd)
mkdir -p "$1"
folder=$(cd "$1" && pwd)/browser
mkdir -p "$folder"
exec 9>"$folder.lock"
flock 9 # others may install it at the same time

if ! cmp -s "$here/package-lock.json" "$folder/ok-package-lock.json"; then
    cp "$here/package.json" "$here/package-lock.json" "$folder"
    npm ci --prefix "$folder" --ignore-scripts --no-fund --no-audit --loglevel=error
    cp "$here/package-lock.json" "$folder/ok-package-lock.json"
fi
