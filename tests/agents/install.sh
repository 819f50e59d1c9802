#!/bin/sh
# Installs the coding agents that the tests run, pinned, into a folder of their own.
# usage: install.sh FOLDER
#
# npm 11 asks before it runs a package's install script, npm 10 runs it; here neither does,
# and the one script that is needed (it puts the native program in place) is run by name.
set -eu
folder=$1
package=@anthropic-ai/claude-code
version=2.1.197
[ -f "$folder/claude/ok-$version" ] && exit 0
mkdir -p "$folder/claude"
npm install --prefix "$folder/claude" --no-save --no-fund --no-audit --ignore-scripts \
    --loglevel=error "$package@$version"
(cd "$folder/claude/node_modules/$package" && node install.cjs)
"$folder/claude/node_modules/.bin/claude" --version | grep -q "^$version "
: >"$folder/claude/ok-$version"
