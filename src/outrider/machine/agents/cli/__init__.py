"""Coding agents that run in a terminal, in windows of a private tmux server.

    CliProvider ─ launch, restore ─▶ CliAgent ─ types ─▶ Keyboard ─▶ Tmux ─▶ the agent's window
                                        │                             │
    AgentSession ◀── observations ── StatusMonitor ◀── snapshots ─────┘
                                        ├─ ScreenRules: what the screen says, by the provider file
                                        ├─ ChatSource, Transcript: what the agent's transcript says
                                        └─ StatusDecider: the status that follows from both

- `provider.py` launches and restores agents of one kind; `launcher.py` is the small program that
  becomes the agent in its window; `spec.py` is what its TOML file holds.
- `agent.py` is the adapter: one agent as its session observes and drives it.
- `status.py` follows the agent and decides its status; `screen.py` reads one screen by the rules.
- `chat.py` is where the chat comes from: the agent's transcript or its screen.
- `keyboard.py` types messages and answers. `adapter_state.py` is what the journal keeps.
- `transcripts/` reads the transcripts, the records that agents keep of their own chats;
  `scrollback.py` reads the chat off the terminal of one that keeps none. `open_message.py` reads
  what an agent is writing.
- `tmux.py` has the windows and what is in them; `tmux_control.py` is the connection to tmux.

docs/providers.md describes the provider files.
"""
