"""Calls and values as bytes: what the engine, the workers and the client call.

A payload says by its first byte how it is to be loaded: below 0x80 it is marshal (builtin scalars only, cheap, and
loading it runs nobody's code), 0x80 is pickle protocol 5, 0x81 two such pickles, and 0x82 stands for a file, which
`store` loads: one with a value, or with a call that is one of the others. What the others hold is the value; or of a
call (args, kwargs) for a callable that has a definition, (module, name, args, kwargs) for a function at the top level
of an importable module, and (callable, args, kwargs) for any other callable. Where a marshalled call has inputs (see
`inputs`), their places follow.

Here only what every worker needs at its start is imported; the pickler and the errors come when they are needed.

Never here: the decision between by reference and by value (see `imports`, `pickler`), frames, exceptions of tasks.
"""

from __future__ import annotations

import marshal
import sys
from types import BuiltinFunctionType, FunctionType

from slipstream.serde.imports import reference_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pickle import PickleBuffer
    from typing import Any, Protocol

    from slipstream.serde.definitions import Definition

    class Store(Protocol):
        """Where large values go."""

        #: Up to so many bytes a value is not large.
        inline_bytes: int

        def write(self, pickle: Sequence[bytes], buffers: list[PickleBuffer]) -> bytes:
            """Write a pickle, which is in pieces, and its buffers; the payload that stands for them."""
            ...


#: A payload is one binary field of a message, whose length has 32 bits.
PAYLOAD_LIMIT = 2**32 - 1
#: A longer string goes as a pickle, so that the thread that reads the sockets need not copy it.
SCALAR_LENGTH_LIMIT = 1024

#: What takes more is stored, where there is a store that says nothing else.
INLINE_BYTES = 64 << 10

#: A smaller first byte is marshal's.
PICKLED = 0x80  # the first byte of every pickle since protocol 2; marshal's type codes are ASCII
_MARSHAL_VERSION = 2  # later ones write references, whose bit would set the first byte to 0x80 and more
FIXED = frozenset((type(None), bool, int, float))
SIZED = frozenset((str, bytes))
#: What can be loaded without running anybody's code.
SCALARS = FIXED | SIZED
#: The first byte of two pickles that share objects: the arguments, and what the callable captures.
PAIR = 0x81
#: The first byte of what stands for a payload in a file (see `store.payload`).
STORED = 0x82
#: What may be found by name at the top level of a module.
FUNCTIONS = frozenset((FunctionType, BuiltinFunctionType))

#: The pickler's `dumps`, once it has been needed.
_dumps: Callable[..., bytes] | None = None
#: That of `inputs`, once a call has had some.
_load_with_inputs: Callable[..., tuple[Any, Sequence[Any]]] | None = None


def encode_call(fn: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> bytes:
    """Encode a call as it is at this moment.

    Args:
        fn: Any callable.
        args: Positional arguments.
        kwargs: Keyword arguments.

    Raises:
        PayloadError: Something in the call cannot be pickled, or the payload is too large. The message names the task
            and the culprit.

    Example:
        >>> decode_call(encode_call(max, (1, 2), {"key": abs}))
        (<built-in function max>, (1, 2), {'key': <built-in function abs>})
    """
    reference = reference_of(fn) if type(fn) in FUNCTIONS else None
    try:
        if reference is None:
            payload = pickle_value((fn, args, kwargs))
        elif SCALARS.issuperset(map(type, args)) and (not kwargs or SCALARS.issuperset(map(type, kwargs.values()))):
            payload = dump_scalars((*reference, args, kwargs))
        else:
            payload = pickle_value((*reference, args, kwargs))
    except Exception as error:  # the user's own reducers may raise anything
        from slipstream.serde.blame import call_error

        raise call_error(fn, args, kwargs, error) from error
    if len(payload) > PAYLOAD_LIMIT:
        from slipstream.serde.blame import call_size_error

        raise call_size_error(fn, len(payload), PAYLOAD_LIMIT)
    return payload


def decode_call(
    payload: bytes | memoryview,
    definition: Definition | None = None,
    classes: Definition | None = None,
    inputs: Sequence[Any] = (),
    buffers: Sequence[Any] = (),
) -> tuple[Callable[..., Any], tuple[Any, ...], dict[str, Any]]:
    """Load a call: the callable, its positional and its keyword arguments.

    Args:
        payload: What `encode_call` or `encode_task` returned, in any process; of a file, its content.
        definition: That of the callable, if it has one.
        classes: That of the classes by value that it needs.
        inputs: The values of the futures among its arguments.
        buffers: Memory of arrays among its arguments.

    Raises:
        PayloadError: It cannot be loaded here; what was raised is the cause.

    Example:
        >>> fn, args, kwargs = decode_call(encode_call(pow, (2, 5), {}))
        >>> fn(*args, **kwargs)
        32
    """
    global _load_with_inputs
    try:
        if classes is not None:
            classes.loaded = _unpickle(classes.data)  # they live as long as this, and need not be made again
        if inputs:
            if _load_with_inputs is None:
                from slipstream.serde.inputs import load_with_inputs as _load_with_inputs
            call, state = _load_with_inputs(_load_call, payload, buffers, inputs)
        elif payload[0] < PICKLED:  # what most calls are, without another call here
            call, state = marshal.loads(payload), ()
        else:
            call, state = _load_call(payload, buffers)
        if definition is not None:
            args, kwargs = call
            return definition.load(state), args, kwargs
        if len(call) == 3:
            return call
        module, name, args, kwargs = call
        if module not in sys.modules:
            __import__(module)
        return getattr(sys.modules[module], name), args, kwargs
    except Exception as error:  # loading runs the user's own constructors
        from slipstream.serde.blame import load_error

        raise load_error("the call", error) from error


def _load_call(payload: bytes | memoryview, buffers: Sequence[Any]) -> tuple[Any, Sequence[Any]]:
    """What the payload of a call holds, and the state of its callable."""
    if payload[0] == PAIR:
        from slipstream.serde.holes import load_pair

        return load_pair(payload[1:], buffers)
    return marshal.loads(payload) if payload[0] < PICKLED else _unpickle(payload, buffers), ()


def encode_value(value: object, store: Store | None = None) -> bytes:
    """Encode the result of a task, for its client and for other workers.

    Args:
        value: Anything.
        store: Writes what is large to where it can be read without a copy. Builtin scalars of up to 1,024 characters
            or bytes are never large.

    Raises:
        PayloadError: It cannot be pickled, or is too large. The message names the type at fault.

    Example:
        >>> decode_value(encode_value([1, "two", 3.0]))
        [1, 'two', 3.0]
    """
    kind = type(value)
    if kind in FIXED or (kind in SIZED and len(value) <= SCALAR_LENGTH_LIMIT):  # pyright: ignore[reportArgumentType]
        return marshal.dumps(value, _MARSHAL_VERSION)  # pyright: ignore[reportArgumentType]
    try:
        payload = _pickle_or_store(value, store)
    except Exception as error:  # noqa: BLE001 - the user's own reducers may raise anything
        # Where there is no room for a file, the value travels in messages.
        payload = _pickle_for_owner(value, error, None if isinstance(error, OSError) else store)
    if len(payload) > PAYLOAD_LIMIT:
        from slipstream.serde.blame import value_size_error

        raise value_size_error(value, len(payload), PAYLOAD_LIMIT)
    return payload


def _pickle_or_store(value: object, store: Store | None, *, reply: bool = False) -> bytes:
    """The pickle of a value, or what stands for it if it is large."""
    if store is None:
        return pickle_value(value, reply=reply)
    from slipstream.serde.buffers import release
    from slipstream.serde.pickler import APART_BYTES, dumps_apart

    # What is apart is stored, so no buffer may be that would not be large as a value of its own.
    pieces, buffers = dumps_apart(value, max(APART_BYTES, store.inline_bytes + 1), reply=reply)
    try:
        large = buffers or pieces.size() > store.inline_bytes
        return store.write(pieces, buffers) if large else pieces.join()
    finally:
        release(buffers)


def _pickle_for_owner(value: object, error: Exception, store: Store | None) -> bytes:
    """The value with classes by name only: a task may have put into its copy of one what cannot be sent."""
    try:
        return _pickle_or_store(value, store, reply=True)
    except Exception:  # noqa: BLE001 - the same
        from slipstream.serde.blame import value_error

        raise value_error(value, error) from error


def decode_value(payload: bytes) -> Any:
    """Load a value.

    Args:
        payload: What `encode_value` returned, in any process.

    Raises:
        PayloadError: It cannot be loaded here; what was raised is the cause.

    Example:
        >>> decode_value(encode_value({"a": (1, None)}))
        {'a': (1, None)}
    """
    try:
        return marshal.loads(payload) if payload[0] < PICKLED else _unpickle(payload)
    except Exception as error:  # loading runs the user's own constructors
        from slipstream.serde.blame import load_error

        raise load_error("the value", error) from error


def _unpickle(payload: bytes | memoryview, buffers: Sequence[Any] = ()) -> Any:
    from pickle import loads  # 4 ms, which a worker that is given scalars only does not need

    return loads(payload, buffers=buffers)


def is_scalar(payload: bytes) -> bool:
    """Whether an encoded value is a builtin scalar, which any thread can decode in no time and without side effects.

    Args:
        payload: What `encode_value` returned.

    Example:
        >>> is_scalar(encode_value(5)), is_scalar(encode_value([5]))
        (True, False)
    """
    return payload[0] < PICKLED


def dump_scalars(call: tuple[object, ...]) -> bytes:
    """A tuple of builtin scalars, and of containers of these, as bytes."""
    try:
        return marshal.dumps(call, _MARSHAL_VERSION)  # pyright: ignore[reportArgumentType]
    except ValueError:  # a string of 2 GiB or more, or a name that is an instance of a subclass of str
        return pickle_value(call)


def pickle_value(value: object, *, reply: bool = False) -> bytes:
    """Pickle any value, even a scalar, with no limit to its size.

    Args:
        value: Anything.
        reply: Whether it goes to the process that the classes here were sent by.

    Raises:
        Exception: Whatever the value's own reducers raise, and pickle's `PicklingError` or `TypeError`.

    Example:
        >>> import pickle
        >>> pickle.loads(pickle_value(lambda: 3))()
        3
    """
    global _dumps
    if _dumps is None:
        from slipstream.serde.pickler import dumps as _dumps
    return _dumps(value, reply=reply)
