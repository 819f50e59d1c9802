"""Agents inside an IDE's window, over its debugging port (the Chrome DevTools Protocol).

`window.py` keeps the connection to the page, `watch.js` tells from inside it what the agents
are doing, `panel.py` judges that, and `adapter.py` makes of it what a session needs. What an
IDE looks like is data: a TOML file, with a script beside it where selectors are not enough.
"""
