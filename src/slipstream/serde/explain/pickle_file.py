"""What a pickle would do, read from its opcodes: nothing is loaded, imported or called, so it may be hostile.

The unpickler's stack is followed with names in place of objects: enough to say which global a STACK_GLOBAL takes, and
which of them are called. A length that exceeds what is left of the file is refused before anything is read.

Never here: `pickle` itself, and anything that imports what a file names.
"""

from __future__ import annotations

import _compat_pickle
import copyreg
import io
import pickletools
import warnings
from collections import Counter
from collections.abc import Callable
from typing import Any, BinaryIO, cast

import msgspec

from slipstream.serde.explain.pickle_stack import MAX_NAME_LENGTH, UNKNOWN, Global, Malformed, Stack
from slipstream.serde.explain.printable import printable

#: Opcodes that are looked at, in some 10 s and 200 MB; more are left unread, and the outline says so.
MAX_OPCODES = 2_000_000
#: Globals that are listed, and constants: the largest, if they have so many bytes.
LISTED_GLOBALS = 1000
LISTED_CONSTANTS = 5
LISTED_CONSTANT_BYTES = 64
#: A longer line is refused: in text, a pickle does not say beforehand how long a line will be.
MAX_LINE_BYTES = 64 << 20
HIGHEST_PROTOCOL = 5
#: Stands for a name that is made while the pickle is loaded.
COMPUTED = "?"

#: Opcodes that call something, change an object, or need something from outside the file.
_COUNTED = frozenset(("REDUCE", "NEWOBJ", "NEWOBJ_EX", "OBJ", "INST", "BUILD", "PERSID", "BINPERSID", "NEXT_BUFFER"))
_STRINGS = frozenset(
    ("SHORT_BINUNICODE", "BINUNICODE", "BINUNICODE8", "UNICODE", "STRING", "BINSTRING", "SHORT_BINSTRING")
)
_TUPLES = frozenset(("TUPLE1", "TUPLE"))
_SUBIMPORT = "cloudpickle.cloudpickle.subimport"


class Constant(msgspec.Struct, frozen=True):
    """A string or bytes in a pickle: its type, its size and where its opcode stands, in bytes."""

    type: str
    bytes: int
    position: int


class Outline(msgspec.Struct, frozen=True):
    """What is known of a pickle without loading it."""

    bytes: int
    #: The highest that it declares or needs.
    protocol: int
    opcodes: int
    #: "module.name" of each global that loading imports, in order, and how often loading calls what.
    globals: tuple[str, ...]
    calls: dict[str, int]
    #: Modules that loading imports, those by cloudpickle's `subimport` among them.
    modules: tuple[str, ...]
    #: How often an opcode occurs that does more than make plain data.
    counts: dict[str, int]
    constants: tuple[Constant, ...]
    #: Bytes after the end of the pickle, which `pickle.load` leaves where they are.
    trailing_bytes: int
    #: Why it cannot be loaded, or was not read to its end; empty if it is complete.
    problem: str = ""

    @property
    def ok(self) -> bool:
        """Whether it is complete and well formed, which does not mean harmless."""
        return not self.problem


class _Reader:
    """A file that refuses to read more than it has: the lengths that pickletools asks for are the pickle's own."""

    def __init__(self, file: BinaryIO, size: int) -> None:
        self._file, self._size = file, size
        self.tell = file.tell

    def left(self) -> int:
        return self._size - self.tell()

    def read(self, size: int) -> bytes:
        self.require(size if size > 1 else 0, "")
        return self._file.read(size)

    def readline(self) -> bytes:
        return self._file.readline(MAX_LINE_BYTES)

    def require(self, size: int, what: str) -> None:
        left = self.left()
        if size > left:
            raise Malformed(f"it is cut off: {what}{size:,} bytes should follow, and {left:,} are left")


def outline(data: bytes) -> Outline:
    r"""Outline a pickle in memory; never raises for what is in it.

    Args:
        data: A pickle of any protocol, or anything else.

    Example:
        >>> import pickle, fractions
        >>> outline(pickle.dumps(fractions.Fraction(1, 3))).globals
        ('fractions.Fraction',)
        >>> outline(b"cos\nsystem\n(S'reboot'\ntR.").calls
        {'os.system': 1}
        >>> outline(b"\x80\x05\x95").problem
        'malformed at byte 2: it is cut off: 8 bytes should follow, and 0 are left'
    """
    return outline_file(io.BytesIO(data), len(data))


def outline_file(file: BinaryIO, size: int) -> Outline:
    """Outline a pickle in a file, from where the file stands.

    Args:
        file: Open for reading in binary.
        size: Bytes from the file's beginning to its end.

    Raises:
        OSError: The file cannot be read.
    """
    return _Walk(file, size).outline()


class _Walk:
    """One pass over the opcodes."""

    def __init__(self, file: BinaryIO, size: int) -> None:
        self._reader, self._start, self._size = _Reader(file, size), file.tell(), size
        self._stack = stack = Stack()
        self._declared = self._needed = self._opcodes = 0
        self._globals: dict[str, None] = {}
        self._modules: dict[str, None] = {}
        self._calls, self._counts = Counter[str](), Counter[str]()
        self._constants: list[Constant] = []
        #: Opcodes that do something else than to replace objects by others.
        self._special: dict[str, Callable[[Any], object]] = {
            **dict.fromkeys(("PUT", "BINPUT", "LONG_BINPUT"), stack.remember),
            **dict.fromkeys(("GET", "BINGET", "LONG_BINGET"), stack.recall),
            **dict.fromkeys(("EXT1", "EXT2", "EXT4"), self._extension),
            "MEMOIZE": stack.memoize,
            "MARK": stack.mark,
            "POP": stack.discard,
            "POP_MARK": stack.down_to_mark,
            "DUP": stack.duplicate,
            "STOP": stack.pop,
            "PROTO": self._proto,
            "FRAME": lambda size: self._reader.require(size, "a frame of "),
            "GLOBAL": self._global,
            "STACK_GLOBAL": self._stack_global,
            "INST": self._inst,
        }

    def outline(self) -> Outline:
        problem = self._read()
        return Outline(
            bytes=self._size - self._start,
            protocol=max(self._declared, self._needed),
            opcodes=self._opcodes,
            globals=tuple(self._globals),
            calls=dict(self._calls),
            modules=tuple(self._modules),
            counts=dict(self._counts),
            constants=tuple(self._constants),
            trailing_bytes=0 if problem else self._reader.left(),
            problem=problem,
        )

    def _read(self) -> str:
        """Look at all opcodes; the problem, if there is one."""
        self._position = self._start
        try:
            with warnings.catch_warnings():  # of text with a wrong escape, which is not our text
                warnings.simplefilter("ignore")
                return self._read_opcodes()
        except Malformed as error:
            reason = str(error)
        except (ValueError, OverflowError) as error:  # pickletools' own, about what it read
            reason = str(error).partition("\n")[0]
        return f"malformed at byte {self._position:,}: {printable(reason)}"

    def _read_opcodes(self) -> str:
        for opcode, argument, position in pickletools.genops(cast(Any, self._reader)):
            self._position = cast(int, position)
            if self._opcodes == MAX_OPCODES:
                return f"not read to its end: only {MAX_OPCODES:,} opcodes were looked at, to byte {position:,}"
            self._opcodes += 1
            self._step(opcode, argument, self._position)
            self._position = self._reader.tell()
        return ""

    def _step(self, opcode: pickletools.OpcodeInfo, argument: Any, position: int) -> None:
        name = opcode.name
        self._needed = max(self._needed, opcode.proto)
        if name in _COUNTED:
            self._counts[name] += 1
        if isinstance(argument, (str, bytes, bytearray)):
            self._constant(type(argument).__name__, position)
        special = self._special.get(name)
        if special is not None:
            special(argument)
            return
        taken = self._stack.take(opcode)
        if name in ("REDUCE", "NEWOBJ", "NEWOBJ_EX", "OBJ"):
            self._call(taken)
        if name in _STRINGS:
            self._stack.push(argument if len(argument) <= MAX_NAME_LENGTH else UNKNOWN)
        elif name in _TUPLES:
            self._stack.push(tuple(taken) if len(taken) == 1 else UNKNOWN)
        else:
            self._stack.push(*[UNKNOWN] * len(opcode.stack_after))

    def _constant(self, kind: str, position: int) -> None:
        size = self._reader.tell() - position
        if size < LISTED_CONSTANT_BYTES:
            return
        self._constants.append(Constant(kind, size, position))
        self._constants.sort(key=lambda constant: -constant.bytes)
        del self._constants[LISTED_CONSTANTS:]

    # --- names --------------------------------------------------------------------------------------------------------

    def _found(self, module: str, name: str) -> None:
        """A global: it is now on the stack."""
        if self._declared < 3:  # as Unpickler.find_class does
            module, name = _compat_pickle.NAME_MAPPING.get((module, name), (module, name))
            module = _compat_pickle.IMPORT_MAPPING.get(module, module)
        found = printable(f"{module}.{name}")
        self._stack.push(Global(found))
        if len(self._globals) < LISTED_GLOBALS:
            self._globals.setdefault(found)
            self._modules.setdefault(printable(module))
        elif found not in self._globals:
            raise Malformed(f"it names more than {LISTED_GLOBALS:,} globals; the rest was not looked at")

    def _call(self, taken: list[Any]) -> None:
        """Something is called; with `taken` come itself and its arguments."""
        if not taken or type(taken[0]) is not Global:
            self._calls["what another call made"] += 1
            return
        self._calls[str(taken[0])] += 1
        if taken[0] == _SUBIMPORT and type(taken[1]) is tuple:  # the one call whose argument matters
            [module] = cast("tuple[Any]", taken[1])
            if type(module) is str and len(self._modules) < LISTED_GLOBALS:
                self._modules.setdefault(printable(module))

    def _global(self, argument: str) -> None:
        module, _, name = argument.partition(" ")
        self._found(module, name)

    def _inst(self, argument: str) -> None:
        self._global(argument)  # first: it is imported even where the mark is missing
        found = self._stack.pop()
        self._stack.down_to_mark()
        self._call([found])
        self._stack.push(UNKNOWN)

    def _stack_global(self, _: Any) -> None:
        name, module = self._stack.pop(), self._stack.pop()
        self._found(*(part if type(part) is str else COMPUTED for part in (module, name)))

    def _extension(self, code: int) -> None:
        registered: Any = cast(Any, copyreg)._inverted_registry.get(code)
        self._found(*((f"extension {code}", "not registered here") if registered is None else registered))

    def _proto(self, protocol: int) -> None:
        if protocol > HIGHEST_PROTOCOL:
            raise Malformed(f"it says protocol {protocol}, and {HIGHEST_PROTOCOL} is the highest there is")
        self._declared = protocol
