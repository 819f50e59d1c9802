"""The words that the service, the machine agent and the SDK share.

Pure data: nothing in here opens a file or a socket, or reads a clock other than
to stamp a new id. The source of every name is the specification and its contract.
"""
