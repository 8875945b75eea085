"""Frames come out of a stream as they went in, however it is cut; messages come out of frames; both are small."""

import importlib.metadata
import itertools
import marshal
import random
from collections.abc import Callable
from types import SimpleNamespace, UnionType
from typing import Any, Union, get_args, get_origin

import msgspec
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

import slipstream
from slipstream.protocol import codec, frames, version, worker_codec
from slipstream.protocol.codec import (
    NOTICES,
    decode_greeting,
    decode_reports,
    decode_requests,
    encode_commands,
    encode_requests,
    is_request,
)
from slipstream.protocol.frames import (
    HEADER_BYTES,
    MAX_FRAME_BYTES,
    READ_BYTES,
    FrameReader,
    ProtocolError,
    frame_header,
)
from slipstream.protocol.ids import NO_DIGEST, CallableDigest, TaskId
from slipstream.protocol.messages import (
    Cancel,
    ClientMessage,
    Done,
    Environment,
    Failed,
    Gave,
    Gone,
    Greeting,
    Hello,
    Kept,
    Lacks,
    Message,
    Notice,
    Release,
    Retract,
    Run,
    Started,
    StartFailed,
    Stop,
    Submit,
    TaskSucceeded,
    WorkerCommand,
    WorkerMessage,
)
from slipstream.protocol.worker_codec import decode_commands
from wire import commands_of, reports_body

# --- frames -----------------------------------------------------------------------------------------------------------

#: Around the sizes at which something changes: nothing, the header, what fits beside it in one read, a whole read.
EDGES = (0, HEADER_BYTES, READ_BYTES - HEADER_BYTES, READ_BYTES)
SIZES = st.one_of(
    st.integers(0, 300),
    st.sampled_from(EDGES).flatmap(lambda edge: st.integers(max(0, edge - 9), edge + 9)),
    st.just(200_000),
)
#: How many bytes come at once: a few, or about a read. As many as there are come in between, to end some day.
CUTS = st.one_of(st.integers(1, 20), st.integers(READ_BYTES - 20, READ_BYTES + 20))


def body_of(size: int) -> bytes:
    return random.Random(size).randbytes(size)


def stream_of(bodies: list[bytes]) -> bytes:
    return b"".join(frame_header(len(body)) + body for body in bodies)


def feed(reader: FrameReader, stream: bytes, cuts: Callable[[], int] = lambda: 1 << 30) -> list[bytes]:
    """Receive a stream as a socket would give it: no more at once than `cuts` says and the target takes."""
    bodies: list[bytes] = []
    position = 0
    while position < len(stream):
        target = reader.target()
        assert len(target) > 0
        count = min(len(target), cuts(), len(stream) - position)
        target[:count] = stream[position : position + count]
        position += count
        bodies += reader.received(count)
    return bodies


@given(st.lists(SIZES, max_size=5), st.lists(CUTS, min_size=1, max_size=6))
@example([READ_BYTES - HEADER_BYTES, 0, READ_BYTES - HEADER_BYTES + 1, 1], [READ_BYTES])
@example([200_000, 200_000], [7])
def test_frames_come_out_whole_however_the_stream_is_cut(sizes: list[int], cuts: list[int]) -> None:
    bodies = [body_of(size) for size in sizes]
    reader = FrameReader()
    assert feed(reader, stream_of(bodies), itertools.cycle([*cuts, 1 << 30]).__next__) == bodies
    assert not reader.midway


@given(st.lists(SIZES, max_size=3), SIZES, st.data())
def test_a_stream_that_ends_inside_a_frame_leaves_the_reader_midway(
    sizes: list[int], last: int, data: st.DataObject
) -> None:
    bodies = [body_of(size) for size in sizes]
    torn = stream_of([body_of(last)])
    torn = torn[: data.draw(st.integers(1, len(torn) - 1), "bytes of the last frame that came")]
    reader = FrameReader()
    assert feed(reader, stream_of(bodies) + torn) == bodies
    assert reader.midway


def test_a_new_reader_is_between_frames() -> None:
    assert not FrameReader().midway


def test_many_small_frames_come_out_of_one_read() -> None:
    bodies = [bytes([n]) * n for n in range(200)]
    reader = FrameReader()
    stream = stream_of(bodies)
    reader.target()[: len(stream)] = stream
    assert reader.received(len(stream)) == bodies


def test_what_was_handed_out_does_not_change_with_what_comes_later() -> None:
    reader = FrameReader()
    (first,) = feed(reader, stream_of([b"first"]))
    (large,) = feed(reader, stream_of([b"l" * 100_000]))
    feed(reader, stream_of([b"later", b"x" * 100_000]))
    assert first == b"first"
    assert large == b"l" * 100_000


def test_a_large_body_is_received_where_it_stays() -> None:
    """Its rest is asked for in one piece, so it is copied once: by the kernel."""
    reader = FrameReader()
    assert feed(reader, stream_of([body_of(1_000_000)])[:READ_BYTES]) == []
    assert len(reader.target()) == 1_000_000 - (READ_BYTES - HEADER_BYTES)


@pytest.mark.parametrize("size", [MAX_FRAME_BYTES + 1, (1 << 64) - 1])
def test_a_length_that_cannot_be_true_is_a_protocol_error(size: int) -> None:
    with pytest.raises(ProtocolError, match=f"a frame claims {size} bytes"):
        feed(FrameReader(), size.to_bytes(HEADER_BYTES, "little"))


def test_a_length_for_which_there_is_no_memory_is_a_protocol_error(monkeypatch: pytest.MonkeyPatch) -> None:
    def no_memory(size: int) -> bytearray:
        raise MemoryError

    reader = FrameReader()
    monkeypatch.setattr(frames, "bytearray", no_memory, raising=False)
    with pytest.raises(ProtocolError, match=f"a frame claims {MAX_FRAME_BYTES} bytes, for which there is no memory"):
        feed(reader, MAX_FRAME_BYTES.to_bytes(HEADER_BYTES, "little"))


# --- messages ---------------------------------------------------------------------------------------------------------

encode: Callable[[Any], bytes] = msgspec.msgpack.encode

#: The messages of a direction, how they are written on one side and read on the other.
DIRECTIONS: dict[str, tuple[Any, Callable[[list[Any]], bytes], Callable[[bytes], list[Any]]]] = {
    "commands": (WorkerCommand, lambda commands: encode_commands(commands, {}), commands_of),
    "reports": (WorkerMessage, reports_body, decode_reports),
    "greeting": (Greeting, reports_body, decode_greeting),
}
#: What a client says and is told: within the process of the scheduler nobody encodes it, but it can be.
INSIDE: dict[str, Any] = {"requests": ClientMessage, "notices": Notice}


def messages_of(union: Any) -> st.SearchStrategy[list[Message]]:
    """Lists of any messages of one direction."""
    return st.lists(st.one_of([st.builds(kind, **fields_of(kind)) for kind in get_args(union)]), max_size=4)


def fields_of(kind: type[Message]) -> dict[str, st.SearchStrategy[Any]]:
    return {field.name: values_of(field.type) for field in msgspec.structs.fields(kind)}


def values_of(kind: Any) -> st.SearchStrategy[Any]:
    """Values of a field's type. Integers are what fits into every field of a report."""
    while hasattr(kind, "__supertype__"):  # a NewType
        kind = kind.__supertype__
    if kind is int:
        return st.integers(0, (1 << 32) - 1)
    if kind is str:
        return st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
    parts = get_args(kind)
    if parts and parts[-1] is Ellipsis:
        return st.lists(values_of(parts[0]), max_size=3).map(tuple)
    if get_origin(kind) in (Union, UnionType):
        return st.one_of(*map(values_of, parts))
    if parts:
        return st.tuples(*map(values_of, parts))
    return st.from_type(kind)


def as_sent(message: Message) -> Message:
    """Definitions are the same for all tasks whose callables, and classes, have the same digest."""
    if isinstance(message, Run):
        digests = b"d" + message.digest, b"c" + message.classes_digest
        definition, classes = [b"definition of " + digest for digest in digests]
        return msgspec.structs.replace(
            message, digest=digests[0], classes_digest=digests[1], definition=definition, classes=classes
        )
    return message


@pytest.mark.parametrize("direction", DIRECTIONS)
@settings(max_examples=30)
@given(data=st.data())
def test_messages_come_out_as_they_went_in(direction: str, data: st.DataObject) -> None:
    union, write, read = DIRECTIONS[direction]
    messages = [as_sent(message) for message in data.draw(messages_of(union))]
    (body,) = feed(FrameReader(), stream_of([write(messages)]))
    assert read(body) == messages


def test_tasks_and_durations_may_have_64_bits() -> None:
    most = (1 << 64) - 1
    reports = [Done(most, 1, most, b"", ((most, b"e"),)), Failed(most, 1, most, b""), Started(most, 1)]
    answers = [Gave(((most, 1),)), Kept(((most, 1),))]
    assert decode_reports(reports_body([*reports, *answers])) == [*reports, *answers]
    commands = [Run(most, 1, b"d", b"p"), Retract(((most, 1),))]
    assert commands_of(encode_commands(commands, {})) == commands


def test_a_text_that_is_not_unicode_arrives_readable() -> None:
    """An initializer may raise with one: a file name, say."""
    (greeting,) = decode_greeting(reports_body([StartFailed("no \udcff")]))
    assert greeting == StartFailed("no \\udcff")


class Owning(bytes):
    """As payloads are that own a file."""


def test_payloads_that_own_something_arrive_as_bytes() -> None:
    run = Run(TaskId(1), 0, NO_DIGEST, Owning(b"call"), 0, (TaskId(2), Owning(b"input")))
    (arrived,) = commands_of(encode_commands([run], {}))
    assert isinstance(arrived, Run)
    assert [type(value) for value in (arrived.payload, *arrived.inputs)] == [bytes, int, bytes]
    assert arrived == run


def test_a_path_that_is_not_unicode_arrives_as_it_was() -> None:
    commands = [Environment(("/tmp/\udcff",))]
    assert commands_of(encode_commands(commands, {})) == commands


@given(st.lists(st.integers(0, 40), max_size=4), st.sampled_from(["payload", "inputs", "definition", "classes"]))
def test_bytes_that_marshal_cannot_count_travel_in_pieces(sizes: list[int], where: str) -> None:
    """marshal counts the bytes of an object in 31 bits; here in 3."""
    payloads = [body_of(size) for size in sizes]
    fields: Callable[[int, bytes], dict[str, Any]] = {
        "payload": lambda n, data: {"payload": data},
        "inputs": lambda n, data: {"payload": b"", "inputs": (data, n, data)},
        "definition": lambda n, data: {"payload": b"", "definition": data},
        "classes": lambda n, data: {"payload": b"", "classes_digest": b"c%d" % n, "classes": data},
    }[where]
    commands: list[WorkerCommand] = [Run(n, 1, b"d%d" % n, **fields(n, data)) for n, data in enumerate(payloads)]
    commands.append(Retract(((1, 1),)))

    def dumps(rows: Any, version: int) -> bytes:
        pieces = [
            *[piece for tag, row in rows if tag == worker_codec.RUN for piece in (row[3], *row[5])],
            *[row[1] for tag, row in rows if tag == worker_codec.DEFINE],
        ]
        if any(type(piece) is bytes and len(piece) > 8 for piece in pieces):
            raise ValueError("unmarshallable object")
        return marshal.dumps(rows, version)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(codec, "marshal", SimpleNamespace(dumps=dumps))
        for half in (codec, worker_codec):
            patch.setattr(half, "PIECE_BYTES", 8)
        body = encode_commands(commands, {})
        assert commands_of(body) == commands


@pytest.mark.parametrize("direction", INSIDE)
@settings(max_examples=30)
@given(data=st.data())
def test_messages_of_clients_survive_encoding(direction: str, data: st.DataObject) -> None:
    messages = data.draw(messages_of(INSIDE[direction]))
    assert msgspec.msgpack.Decoder(list[INSIDE[direction]]).decode(encode(messages)) == messages


@settings(max_examples=30)
@given(messages_of(ClientMessage))
def test_what_the_tasks_of_a_worker_ask_for_is_no_report(messages: list[Any]) -> None:
    for message in messages:
        body = encode_requests([message])
        assert is_request(body)
        assert decode_requests(body) == [message]


@pytest.mark.parametrize("count", [0, 1, 15, 16, 1 << 16])
def test_reports_are_no_requests_however_many_there_are(count: int) -> None:
    assert not is_request(reports_body([Started(1, 1)] * count))


def test_what_is_neither_a_report_nor_a_request_is_a_protocol_error() -> None:
    for body in (b"", b"hello", msgspec.msgpack.encode([[99, 1]]), encode_requests([Release(1)])[:-1]):
        assert is_request(body)
        with pytest.raises(ProtocolError, match=f"a frame of {len(body)} bytes cannot be read: "):
            decode_requests(body)


class Owner(bytes):
    """As payloads are that own a file: marshal does not write them."""


def test_payloads_that_own_files_are_told_as_what_they_are() -> None:
    told = [TaskSucceeded(1, Owner(b"v"), 5, ((0, Owner(b"e")),)), Submit(1, DIGEST, b"p", inputs=(2, Owner(b"v")))]
    body = encode_commands([*told, Run(1, 1, DIGEST, b"p", inputs=(2, Owner(b"v")))], {})
    assert commands_of(body)[:2] == told


def test_messages_come_out_of_a_body_that_was_received_in_place() -> None:
    messages = [Done(1, 1, 5, body_of(300_000)), Started(2, 1)]
    (body,) = feed(FrameReader(), stream_of([reports_body(messages)]))
    assert decode_reports(body) == messages


NOT_REPORTS = {
    "nothing": b"",
    "text": b"hello",
    "not a list": msgspec.msgpack.encode({"a": 1}),
    "torn": encode([Done(1, 1, 5, b"result")])[:-1],
    "a command": encode([Stop()]),
    "another type of field": msgspec.msgpack.encode([[10, "one", 1]]),
    "a missing field": msgspec.msgpack.encode([[10, 1]]),
    "an unknown tag": msgspec.msgpack.encode([[99, 1, 1]]),
    "text that is not UTF-8": msgspec.msgpack.encode([[10, 1, 1]]).replace(b"\x0a", b"\xa1\xff"),
}


@pytest.mark.parametrize("body", NOT_REPORTS.values(), ids=NOT_REPORTS)
def test_what_is_not_a_message_is_a_protocol_error(body: bytes) -> None:
    with pytest.raises(ProtocolError, match=f"a frame of {len(body)} bytes cannot be read: "):
        decode_reports(body)


@given(st.binary(max_size=60))
def test_bytes_from_anywhere_are_messages_or_a_protocol_error(body: bytes) -> None:
    for decode in (decode_reports, decode_greeting):
        try:
            messages = decode(body)
        except ProtocolError:
            continue
        assert decode(encode(messages)) == messages


def test_messages_of_another_direction_are_a_protocol_error() -> None:
    commands = [Run(1, 1, b"d", b"p"), Retract(((1, 1),)), Environment(("/usr",)), Stop()]
    reports = [Started(1, 1), Done(1, 1, 1, b""), Failed(1, 1, 1, b""), Gave(((1, 1),))]
    for message in commands:
        with pytest.raises(ProtocolError):
            decode_reports(encode_commands([message], {}))
    for message in [*reports, Hello(1, "3.11", "0.1")]:
        with pytest.raises(ProtocolError):
            decode_commands(reports_body([message]))


@pytest.mark.parametrize("body", [b"", b"hello", encode_commands([Stop()], {})[:-1]])
def test_what_is_no_frame_of_commands_is_a_protocol_error(body: bytes) -> None:
    with pytest.raises(ProtocolError, match=f"a frame of {len(body)} bytes cannot be read: "):
        decode_commands(body)


def test_the_release_that_a_greeting_names_is_that_of_the_distribution() -> None:
    assert version.__version__ == slipstream.__version__ == importlib.metadata.version("slipstream")


def test_workers_write_and_read_the_tags_of_the_messages() -> None:
    """Which field comes where is held by the tests above: here, that no tag means another message."""
    tags = {
        kind: kind.__struct_config__.tag
        for union in (WorkerCommand, WorkerMessage, Greeting)
        for kind in get_args(union)
    }
    by_name = {name: getattr(worker_codec, name) for name in ("RUN", "RETRACT", "ENVIRONMENT", "STORAGE", "STOP")}
    by_name |= {kind.__name__.upper(): tag for tag, kind in NOTICES.items()}
    assert by_name == {kind.__name__.upper(): tag for kind, tag in tags.items() if kind in get_args(WorkerCommand)}
    assert set(NOTICES.values()) == {*get_args(Notice), Submit, Cancel}


def test_every_message_has_a_tag_of_its_own() -> None:
    unions = [*INSIDE.values(), *(union for union, *_ in DIRECTIONS.values())]
    kinds = {kind for union in unions for kind in get_args(union)}
    assert len({kind.__struct_config__.tag for kind in kinds}) == len(kinds) == 30


# --- sizes ------------------------------------------------------------------------------------------------------------

DIGEST = CallableDigest(bytes(17))
#: A million tasks into a run, in its own process, ids and durations take the most that a usual run needs.
LATE = 1_000_000


def test_a_no_op_is_small_on_the_wire() -> None:
    """One more task in a frame, beside its payload and the digest of its callable."""
    run = Run(LATE, 1, DIGEST, b"")
    assert len(encode_commands([run, run], {})) - len(encode_commands([run], {})) <= len(DIGEST) + 50
    done = Done(LATE, 1, 150_000, b"")
    assert len(reports_body([done, done])) - len(reports_body([done])) <= 31


def test_a_frame_adds_little_to_its_messages() -> None:
    body = reports_body([Started(LATE, 1)] * 256)
    assert len(frame_header(len(body))) + len(body) - 256 * (len(reports_body([Started(LATE, 1)])) - 5) <= 13


def test_a_worker_says_what_it_lacks_and_what_is_gone() -> None:
    messages = [Lacks(((1, 2), (3, 4))), Gone(5, 6, (b"\x82file", b""))]
    assert codec.decode_reports(reports_body(messages)) == messages
