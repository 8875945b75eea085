"""The worker: a fresh interpreter that decodes, runs and encodes, one task at a time, on its main thread.

Never here: anything of the scheduler. A worker knows nothing but what it is told in `protocol` messages.
"""
