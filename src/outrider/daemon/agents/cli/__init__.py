"""Coding agents that run in a terminal: real ones, in windows of a private tmux server.

`provider_file.py` says what a provider's TOML file holds, `screen.py` judges a screen by
it, `transcripts/` reads the records that agents keep of their chats, `tmux.py` is the one
connection to tmux, and `adapter.py` makes an `Adapter` of all that.
"""
