#!/bin/sh
# Installs coding agents that the tests run, pinned, each into a folder of its own.
# usage: install.sh FOLDER AGENT...      (without AGENT: all of them)
#
# npm 11 asks before it runs a package's install script, npm 10 runs it; here neither does,
# and a script that is needed (it puts the native program in place) is run by name.
set -eu
cache=$1
shift
[ $# -gt 0 ] || set -- claude-code codex opencode gemini-cli aider claude-acp opencode-acp gemini-acp codex-acp llm-chat

# npm_agent PACKAGE VERSION [COMMAND [SCRIPT]]: into $folder, with the SCRIPT of the package
npm_agent() {
    [ -f "$folder/ok-$2" ] && return
    mkdir -p "$folder"
    npm install --prefix "$folder" --no-save --no-fund --no-audit --ignore-scripts \
        --loglevel=error "$1@$2"
    [ -z "${4-}" ] || (cd "$folder/node_modules/$1" && node "$4")
    [ -z "${3-}" ] || HOME=$folder "$folder/node_modules/.bin/$3" --version | grep -qwF "$2"
    : >"$folder/ok-$2"
}

# pip_agent PACKAGE VERSION COMMAND: into a virtual environment in $folder, with only the
# COMMAND in $folder/bin
pip_agent() {
    [ -f "$folder/ok-$2" ] && return
    mkdir -p "$folder/bin"
    python3 -m venv "$folder/venv"
    "$folder/venv/bin/python" -m pip install --quiet --disable-pip-version-check "$1==$2"
    ln -sf "../venv/bin/$3" "$folder/bin/$3"
    : >"$folder/ok-$2"
}

mkdir -p "$cache"
cache=$(cd -P "$cache" && pwd) # virtual environments keep their path, and a link to it may go
for agent in "$@"; do
    folder=$cache/$agent
    exec 9>"$cache/$agent.lock"
    flock 9 # tests run in several processes
    case $agent in
        claude-code) npm_agent @anthropic-ai/claude-code 2.1.197 claude install.cjs ;;
        codex) npm_agent @openai/codex 0.169.0 codex ;;
        opencode) npm_agent opencode-ai 1.18.33 opencode postinstall.mjs ;;
        gemini-cli) npm_agent @google/gemini-cli 0.61.0 gemini ;;
        aider) pip_agent aider-chat 0.86.2 aider ;;
        claude-acp) npm_agent @agentclientprotocol/claude-agent-acp 0.49.0 ;;
        opencode-acp) npm_agent opencode-ai 1.18.33 opencode postinstall.mjs ;;
        gemini-acp) npm_agent @google/gemini-cli 0.61.0 gemini ;;
        codex-acp) npm_agent @zed-industries/codex-acp 0.16.0 ;;
        llm-chat) pip_agent llm 0.36 llm ;;
        *)
            echo "install.sh: no agent $agent is known" >&2
            exit 1
            ;;
    esac
done
