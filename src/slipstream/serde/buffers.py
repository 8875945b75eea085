"""Memory of arrays that travels apart from the pickle that refers to it.

Never here: where it travels to (see `store`).
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable
    from pickle import PickleBuffer


def release(buffers: Iterable[PickleBuffer]) -> None:
    """Let go of memory: an array whose buffer is held cannot be resized (and see `reducers.reduce_view_apart`)."""
    for buffer in buffers:
        buffer.release()
