"""Large values that say by themselves whether they are whole, and tasks that make and take them.

Workers import this module by name. Never here: graphs and what is expected of them.
"""

import os
import time
import zlib
from collections import deque
from dataclasses import dataclass, fields, is_dataclass
from typing import Any

import numpy

import calls

#: Numbers in an array: one that is read from its file, one that is mapped, and one of 5 MB.
COUNTS = {"read": 25_000, "mapped": 140_000, "huge": 650_000}
#: What `make` knows; "small" is none that is stored.
KINDS = (*COUNTS, "list", "text", "box", "pair", "small")
_PRIME = 1_000_003


@dataclass
class Box:
    """A value with attributes, some of which are large."""

    number: int
    array: Any
    text: Any = ""


def make(kind, seed):
    """A value of a kind, all of which follows from the seed."""
    seed %= _PRIME
    if kind in COUNTS:
        return numpy.arange(seed, seed + COUNTS[kind])
    if kind == "list":
        return list(range(1_000_000 + seed, 1_030_000 + seed))  # a pickle of 150 kB
    if kind == "text":
        return f"{seed:08d}" * 12_500
    if kind == "box":
        return Box(seed, make("mapped", seed), make("text", seed + 1))
    if kind == "pair":
        return make("read", seed), make("text", seed + 1)
    return seed


def fingerprint(value):
    """A number that another value, or one with any other byte, has not."""
    if isinstance(value, numpy.ndarray):
        return zlib.crc32(memoryview(numpy.ascontiguousarray(value)).cast("B"), value.size)
    if isinstance(value, dict):
        value = [part for item in value.items() for part in item]
    elif is_dataclass(value):
        value = [getattr(value, field.name) for field in fields(value)]
    if isinstance(value, list) and all(type(part) is int for part in value):
        return zlib.crc32(repr(value).encode())
    if isinstance(value, list | tuple | deque):
        return zlib.crc32(repr([type(value).__name__, *map(fingerprint, value)]).encode())
    return zlib.crc32(str(value).encode())


def files_of(executor):
    """Names of the files in which its values lie, in shared memory and on disk."""
    run = executor._values._run
    if run is None:
        return []
    return [name for path in (run.path, run.spill) if os.path.exists(path) for name in os.listdir(path)]


def built(kind, number, /, *args, **kwargs):
    """What a task makes of its arguments."""
    return make(kind, number + fingerprint(args) + fingerprint(kwargs))


def built_and_spoilt(kind, number, /, *args, **kwargs):
    """The same; then what it was given is written over, which nobody else may see."""
    value = built(kind, number, *args, **kwargs)
    _spoil((args, kwargs))
    return value


def _spoil(value):
    if isinstance(value, numpy.ndarray) and value.flags.writeable:
        value -= 1
    elif isinstance(value, dict):
        _spoil(list(value.values()))
    elif isinstance(value, list | tuple | deque):
        for part in value:
            _spoil(part)
    elif is_dataclass(value):
        _spoil([getattr(value, field.name) for field in fields(value)])


def file_of(array, nap_s):
    """The worker, the file in which an array lies there (0 if in none), and its last number; after a while."""
    time.sleep(nap_s)
    address = array.ctypes.data
    with open("/proc/self/maps") as maps:
        for line in maps:
            span, _, _, _, inode = line.split()[:5]
            start, end = (int(number, 16) for number in span.split("-"))
            if start <= address < end:
                return os.getpid(), int(inode), int(array[-1])
    raise LookupError(address)


def held(value, note, gate):
    """The fingerprint, taken when the gate is there; until then the value is held, and the note says by whom."""
    with open(note + ".new", "w") as file:
        file.write(str(os.getpid()))
    os.rename(note + ".new", note)
    calls.wait_for(gate)
    return fingerprint(value)


def half_written(note):
    """A large array in whose writing the worker stops half-way, once it has told so, for as long as it lives."""

    def write_half(descriptor, pieces, real=os.writev):
        flat = memoryview(b"".join(pieces))
        real(descriptor, [flat[: len(flat) // 2]])
        with open(note, "w") as file:
            file.write("half")
        time.sleep(600)

    os.writev = write_half
    return make("huge", 1)
