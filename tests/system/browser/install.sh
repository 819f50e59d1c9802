#!/bin/sh
# Installs what the pages of the browser tests use, pinned: xterm.js.
# usage: install.sh FOLDER
set -eu
here=$(CDPATH= cd -- "$(dirname -- "$0")" && pwd)
mkdir -p "$1"
folder=$(cd "$1" && pwd)/browser
. "$here/../../rig/npm-ci.sh"
