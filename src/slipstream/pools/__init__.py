"""Pools carry frames to workers and back, and tell when workers come and go.

Never here: what is in a frame, or which worker should get it.
"""
