"""Drives the core: turns, sockets, timers, threads, signals. The only part that calls `core.Scheduler`.

Never here: scheduling decisions (core), what a payload holds (serde), what a future looks like (future).
"""
