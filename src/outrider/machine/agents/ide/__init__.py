"""Agents inside an IDE's window, over its debugging port (the Chrome DevTools Protocol).

    IdeProvider ─ launch, adopt, restore ─▶ IdeAdapter ─▶ one IdeAgent per agent of the IDE
                                                │
    page, watch.js ─ reports ─▶ Window ─▶ StatusMonitor ─▶ Panel ─ judgements ─▶ observations

- `provider.py` launches, adopts and restores; `launch.py` starts the programs; `program.py` is
  one of them; `adapter_state.py` is what the journal keeps; `spec.py` what the TOML file holds.
- `agent.py` holds the adapter and its agents, as a session observes and drives them.
- `debugging_port.py` and `window.py` keep the connection to the page; `watch.js` runs in the page.
- `panel.py` derives one agent's status from its reports, without I/O; `status.py` adds the
  state of the window and of the programs.
- `chat.py` reads chats and delivers messages; `controls.py` changes settings;
  `screenshot.py` takes pictures.

What an IDE looks like is data: a TOML file, with a script where selectors are not enough.
"""
