"""Drives the core: turns, sockets, timers, threads, signals. The only part that calls `core.Scheduler`.

Never here: scheduling decisions (core), what a payload holds (serde), what a future looks like (future).
"""

import logging

logging.getLogger("slipstream").addHandler(logging.NullHandler())  # an application that wants our log says so
