"""The scheduler: a pure state machine. Events in, effects out.

Never here: I/O, clocks, threads, randomness, logging, pickling. Time is an argument; the same events at the same times
give the same effects, byte for byte.
"""
