"""`slipstream bench`: every pattern for Slipstream and each installed peer, interleaved in one run.

`command` reads the options, `measure` says who runs when, `session` owns the client processes, `client` is what runs
in them, `patterns`, `flows` and `arrays` hold the timed loops, `load` what those share, `systems` and `clusters` what
is measured, `memory` looks at memory, `floors` is what no system can beat, `results` the figures and `show` the tables.
Nothing is imported here, for the workers of every system import `tasks` through here.
"""
