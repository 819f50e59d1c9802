#!/bin/sh
# Installs what the tests of the pages use, pinned: axe-core.
# usage: install.sh FOLDER
set -eu
here=$(CDPATH= cd -- "$(dirname -- "$0")" && pwd)
mkdir -p "$1"
folder=$(cd "$1" && pwd)/axe
. "$here/../../rig/npm-ci.sh"
