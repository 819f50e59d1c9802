"""Live updates: the events of an account, to those that wait for them on any node.

    feed          wake-ups: an event of an account was stored, on this node or another
    reader        reads the new events of an account once for all of its streams on this node
    streams       the open streams: what each is sent, and its end
    selection     which events a client gets: scopes and filters
    frames        the frames of a stream, and its buffer for a slow client
    stream_limit  how many streams a credential has, on all nodes
    pages         the log page by page, with a long poll
    deltas        the text of messages while agents write them, from one node to another

The database is the truth. A wake-up only says that reading again is worthwhile. It may come without
a new event, and does not come while Redis fails, so whoever waits reads again from time to time.
"""
