"""What crosses a boundary: identities, messages and frames.

Here live plain typed structures and their encoding. Never here: sockets, threads, clocks, scheduling decisions.
"""
