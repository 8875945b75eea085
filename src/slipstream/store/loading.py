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
        PayloadError: It cannot be loaded here, or a file of it is gone; what was raised is the cause.
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
        PayloadError: One cannot be loaded, or is gone.
    """
    values: list[Any] = []
    buffers: list[memoryview] = []
    for payload in payloads:
        if is_stored(payload):
            from slipstream.store.reading import load_buffers

            found = load_buffers(payload)
            if found is None:
                values.append(load_value(payload))
            else:
                buffers += found
        else:
            values.append(decode_value(payload))
    return values, buffers
