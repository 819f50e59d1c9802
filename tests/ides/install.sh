#!/bin/sh
# Installs the IDEs that the tests run, pinned, into a folder of their own (minutes, 620 MB).
# usage: install.sh FOLDER
set -eu
folder=$1/jupyterlab
[ -f "$folder/ok-4.6.6-3.2.0-0.49.0" ] && exit
mkdir -p "$folder"
python3 -m venv "$folder/venv"
"$folder/venv/bin/python" -m pip install --quiet --disable-pip-version-check \
    jupyterlab==4.6.6 jupyter-ai==3.2.0
npm install --prefix "$folder" --no-save --no-fund --no-audit --ignore-scripts \
    --loglevel=error @agentclientprotocol/claude-agent-acp@0.49.0
"$folder/venv/bin/jupyter-lab" --version | grep -qxF 4.6.6
: >"$folder/ok-4.6.6-3.2.0-0.49.0"
