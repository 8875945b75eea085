"""Values, wherever they are: in a payload, or in a file that it stands for.

Never here: where the inputs of a task stand in its call (see `serde.inputs`).
"""

from __future__ import annotations

from slipstream.serde.values import decode_call, decode_value
from slipstream.store.payload import is_stored

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import Any

    from slipstream.errors import PayloadError
    from slipstream.serde.definitions import Definition


def load_value(payload: bytes) -> Any:
    """Load a value, wherever it is.

    Args:
        payload: Of any kind.

    Raises:
        PayloadError: It cannot be loaded here, or its file is gone; what was raised is the cause.
    """
    if not is_stored(payload):
        return decode_value(payload)
    from slipstream.store.reading import load_stored

    try:
        return load_stored(payload)
    except Exception as error:
        from slipstream.serde.blame import load_error

        raise load_error("the value", error) from error


class InputsGoneError(Exception):
    """Values that a task takes are not there any more.

    Args:
        payloads: What stands for them.
    """

    def __init__(self, payloads: Sequence[bytes]) -> None:
        super().__init__(f"{len(payloads)} values are gone")
        self.payloads = payloads


def load_call(
    payload: bytes, definition: Definition | None, classes: Definition | None, inputs: Sequence[bytes]
) -> tuple[Callable[..., Any], tuple[Any, ...], dict[str, Any]]:
    """Load a call, wherever it is, and its inputs.

    Args:
        payload: The call, of any kind.
        definition: As in `serde.values.decode_call`; the same holds for `classes`.
        classes: See there.
        inputs: What `load_inputs` takes.

    Raises:
        InputsGoneError: Results of other tasks are gone.
        PayloadError: It cannot be loaded here, or a file of its own is gone; what was raised is the cause.
    """
    content: bytes | memoryview = payload
    try:
        if is_stored(payload):
            from slipstream.store.reading import load_content

            content = load_content(payload)
        values, buffers = load_inputs(inputs)
    except (LookupError, OSError) as error:
        raise _gone_error(error) from error
    return decode_call(content, definition, classes, values, buffers)


def _gone_error(error: LookupError | OSError) -> PayloadError:
    from slipstream.errors import PayloadError
    from slipstream.store.reading import ValueGoneError

    what = f"{error.path} was removed or cut short" if isinstance(error, ValueGoneError) else str(error)
    return PayloadError(f"the call cannot be loaded: its arguments are in a file, and {what}. Submit the task again")


def load_inputs(payloads: Sequence[bytes]) -> tuple[list[Any], list[memoryview]]:
    """Load the inputs of a task: results of other tasks, and memory of arrays among its arguments.

    Args:
        payloads: First those of results, then those of the memory of arrays, which have no pickle.

    Returns:
        The values, and the memory.

    Raises:
        InputsGoneError: Some results are gone; all of these are named.
        ValueGoneError: The memory of an array is gone.
        PayloadError: One cannot be loaded.
    """
    values: list[Any] = []
    buffers: list[memoryview] = []
    gone: list[bytes] = []
    for payload in payloads:
        if not is_stored(payload):
            values.append(decode_value(payload))
            continue
        from slipstream.store.reading import load_buffers

        found = load_buffers(payload)
        if found is not None:
            buffers += found
            continue
        try:
            values.append(load_value(payload))
        except Exception as error:
            if not is_gone(error):
                raise
            gone.append(payload)
    if gone:
        raise InputsGoneError(gone)
    return values, buffers


def is_gone(error: BaseException) -> bool:
    """Whether a value could not be loaded since its file is not there any more."""
    from slipstream.store.reading import ValueGoneError

    return isinstance(error.__cause__, ValueGoneError)
