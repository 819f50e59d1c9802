"""Coding agents: terminals (`cli/`), the Agent Client Protocol (`acp/`) and IDEs (`ide/`).

- `provider.py` and `adapter.py`: the bases. A provider launches and restores adapters; an adapter
  observes, delivers and reads. `cli/`, `acp/` and `ide/` keep what differs, each in its
  `provider.py` and `agent.py`; its `spec.py` is what its provider files hold. `pane.py`: the
  window that an agent in a terminal has.
- `provider_spec.py`: what every provider file holds, and how the files are read and merged;
  `providers.py` makes all providers of this machine from them.
- `failure.py` words errors of agents that do not start. `patterns.py` runs the patterns of provider
  files under a time limit. `tools.py`: what a tool call does, from any agent's words for it.
- `inspection.py`: what `outrider providers` shows, without a running machine agent.

A command goes commands → `sessions` → adapter; what an adapter observes goes the same way back.
"""
