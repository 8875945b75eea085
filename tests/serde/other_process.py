"""A fresh interpreter that decodes calls, runs them and encodes what comes of it, as a worker does."""

import pickle
import struct
import subprocess
import sys
from collections.abc import Callable, Sequence
from typing import Any

from slipstream.serde.buffers import release
from slipstream.serde.exceptions import decode_exception
from slipstream.serde.tasks import encode_task
from slipstream.serde.values import decode_value

# Its __main__ is empty but for these names, none of which a test uses.
BOOT = """
import pickle as _pickle, struct as _struct, sys as _sys
_sys.path[:] = _sys.argv[1:]
from slipstream.serde import exceptions as _exceptions, values as _values
from slipstream.serde.definitions import Definitions as _Definitions
_definitions = _Definitions()
_read, _write = _sys.stdin.buffer.read, _sys.stdout.buffer.write
while _head := _read(8):
    try:
        _digest, _new, _classes, _buffers, _call = _pickle.loads(_read(_struct.unpack("<Q", _head)[0]))
        for _definition in _new:
            _definitions.add(*_definition)
        _known = _definitions.get(_digest), _definitions.get(_classes)
        _fn, _args, _kwargs = _values.decode_call(_call, *_known, (), _buffers)
        _kind, _reply = b"+", _values.encode_value(_fn(*_args, **_kwargs))
    except BaseException as _error:
        _kind, _reply = b"-", _exceptions.encode_exception(_error, "the task")
    _fn = _args = _kwargs = _classes = None
    _write(_kind + _struct.pack("<Q", len(_reply)) + _reply)
    _sys.stdout.buffer.flush()
"""


class OtherProcess:
    """Runs calls in another interpreter, one after the other."""

    def __init__(self, path: Sequence[str] | None = None) -> None:
        command = [sys.executable, "-c", BOOT, *(sys.path if path is None else path)]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self._known: set[bytes] = set()

    def call(self, fn: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[bool, bytes]:
        """The same for a call, with the definitions that the process was not sent yet."""
        encoded = encode_task(fn, args, kwargs)
        new: list[tuple[bytes, bytes]] = []
        for digest, data in ((encoded.digest, encoded.definition), (encoded.classes_digest, encoded.classes)):
            if data and digest not in self._known:
                self._known.add(digest)
                new.append((digest, data))
        buffers = [bytearray(buffer) for buffer in encoded.buffers]
        release(encoded.buffers)
        return self.answer(encoded.payload, encoded.digest, new, encoded.classes_digest, buffers)

    def answer(
        self,
        payload: bytes,
        digest: bytes = b"",
        new: Sequence[Any] = (),
        classes: bytes = b"",
        buffers: Sequence[Any] = (),
    ) -> tuple[bool, bytes]:
        """Whether the call returned, and the encoded result or exception."""
        payload = pickle.dumps((digest, new, classes, buffers, payload))
        stdin, stdout = self._process.stdin, self._process.stdout
        assert stdin is not None
        assert stdout is not None
        stdin.write(struct.pack("<Q", len(payload)) + payload)
        stdin.flush()
        head = stdout.read(9)
        assert len(head) == 9, "the other process has died"
        return head[:1] == b"+", stdout.read(struct.unpack("<Q", head[1:])[0])

    def run(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
        """The result of the call there; raises what it raised."""
        returned, payload = self.call(fn, args, kwargs)
        if returned:
            return decode_value(payload)
        raise decode_exception(payload)

    def failure(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> BaseException:
        """The exception of the call there."""
        returned, payload = self.call(fn, args, kwargs)
        assert not returned, decode_value(payload)
        return decode_exception(payload)

    def close(self) -> None:
        """End it."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        status = self._process.wait(20)
        self._process.stdout.close()
        assert status == 0
