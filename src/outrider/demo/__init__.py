"""A demo agent: speaks the Agent Client Protocol, needs no account, and acts on the first word.

`python -m outrider.demo` runs it on its standard input and output. It is launched as provider
`demo` on the same path as every ACP agent, so that approvals, streaming, tools and errors can be
tried where no agent is installed (docs/demo.md). It reads and writes files only through its
client, which confines it to the session's directory.
"""
