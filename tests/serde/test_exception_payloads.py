"""What a task raised, as it arrives from another interpreter."""

import asyncio
import copyreg
import dataclasses
import gc
import json
import pickle
import subprocess
import sys
import threading
import traceback
import urllib.error
import weakref

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slipstream.errors import RemoteError, WorkerLost
from slipstream.serde import exception_body, exceptions
from slipstream.serde.exceptions import RemoteTraceback, decode_exception, encode_exception


def printed(exc):
    return "".join(traceback.format_exception(exc))


def there_and_back(exc):
    """Raised and caught, since that is how a task's exception comes."""
    try:
        raise exc
    except BaseException as caught:
        return decode_exception(encode_exception(caught, "shout"))


def inner():
    raise KeyError("inner-1")


def outer():
    try:
        inner()
    except KeyError as cause:
        error = RuntimeError("outer-2")
        error.add_note("note-3")
        raise error from cause


def during():
    try:
        inner()
    except KeyError:
        raise RuntimeError("outer-2")  # noqa: B904 - without a cause, on purpose


def hiding():
    try:
        inner()
    except KeyError:
        raise RuntimeError("outer-2") from None


def test_cause_notes_and_remote_frames_arrive(other):
    error = other.failure(outer)
    assert (type(error), error.args, error.__notes__) == (RuntimeError, ("outer-2",), ["note-3"])
    assert (type(error.__cause__), error.__cause__.args) == (KeyError, ("inner-1",))
    assert error.__context__ is error.__cause__
    assert isinstance(error.__cause__.__cause__, RemoteTraceback)
    text = printed(error)
    for word in ("inner-1", "outer-2", "in inner", "in outer", "direct cause", "note-3", 'raise KeyError("inner-1")'):
        assert word in text
    # The engine's frames, and those of the process that ran the task, are nobody's business.
    assert "values.py" not in text


def test_a_context_arrives_as_raised(other):
    error = other.failure(during)
    assert error.__cause__ is None
    assert type(error.__context__) is KeyError
    assert error.__suppress_context__ is False
    assert isinstance(error.__context__.__cause__, RemoteTraceback)
    assert "During handling of the above exception" in printed(error)


def test_a_suppressed_context_stays_suppressed(other):
    error = other.failure(hiding)
    assert isinstance(error.__cause__, RemoteTraceback)
    assert type(error.__context__) is KeyError
    assert error.__suppress_context__ is True
    assert "inner-1" not in printed(error)


def test_an_exception_that_passes_a_second_process_names_each_frame_once():
    try:
        raise there_and_back(ValueError("v"))
    except ValueError as error:
        again = decode_exception(encode_exception(error))
    assert isinstance(again.__cause__, RemoteTraceback)
    assert again.__cause__.__cause__ is None
    assert str(again.__cause__).count("in there_and_back") == 1
    assert "in test_an_exception_that_passes" in str(again.__cause__)


class TwoArguments(Exception):
    def __init__(self, user, limit):
        super().__init__(f"{user} over {limit}")
        self.user = user
        self.limit = limit


class WithLock(TwoArguments):
    def __init__(self, user, limit):
        super().__init__(user, limit)
        self.lock = threading.Lock()


class Rewording(Exception):
    def __init__(self, code):
        super().__init__(f"code {code}")


class KeywordOnly(ValueError):
    def __init__(self, *, where):
        super().__init__("at", where)
        self.where = where


class OwnNew(Exception):
    def __new__(cls, first, second):
        return super().__new__(cls, first)

    def __init__(self, first, second):
        self.second = second


class FileTrouble(OSError):
    def __init__(self, path):
        super().__init__(2, "gone", path)
        self.path = path


@dataclasses.dataclass(frozen=True)
class Frozen(Exception):
    a: int
    b: int = 2


class OwnReduce(Exception):
    def __init__(self, a, b):
        super().__init__(a)
        self.b = b

    def __reduce__(self):
        return OwnReduce, (self.args[0], self.b)


#: What builtin exceptions keep neither in args nor in __dict__.
FIELDS = (
    "errno",
    "strerror",
    "filename",
    "filename2",
    "name",
    "path",
    "value",
    "code",
    "reason",
    "start",
    "lineno",
    "text",
)


@pytest.mark.parametrize(
    "exc",
    [
        TwoArguments("u7", 42),
        Rewording(5),
        KeywordOnly(where="x"),
        OwnNew(1, 2),
        FileTrouble("/nowhere"),
        Frozen(1),
        OwnReduce(1, 2),
        FileNotFoundError(2, "No such file", "a.txt"),
        OSError(17, "exists", "a", None, "b"),
        OSError("only text"),
        UnicodeDecodeError("utf-8", b"\xff", 0, 1, "invalid"),
        ImportError("no", name="a.b", path="/c"),
        StopIteration(3),
        SystemExit(4),
        KeyError("k"),
        SyntaxError("bad", ("f.py", 1, 2, "x =", 1, 3)),
        subprocess.CalledProcessError(3, ["ls"], "out", "err"),
        json.JSONDecodeError("bad", "{", 1),
        asyncio.CancelledError("stop"),
        KeyboardInterrupt(),
        GeneratorExit("stop"),
        WorkerLost("died", signal=9, item=3),
    ],
    ids=lambda exc: type(exc).__name__,
)
def test_type_args_attributes_and_text_arrive(exc):
    got = there_and_back(exc)
    assert type(got) is type(exc)
    assert (got.args, vars(got), str(got)) == (exc.args, vars(exc), str(exc))
    for name in FIELDS:
        assert getattr(got, name, None) == getattr(exc, name, None)
    assert isinstance(got.__cause__, RemoteTraceback)


IN_SCRIPT = """
class QuotaError(Exception):
    def __init__(self, user, limit):
        super().__init__(f"{user} over {limit}")
        self.user = user
        self.limit = limit

class Weird(BaseException):
    pass

def boom():
    raise QuotaError("u7", 42)

def weird():
    raise Weird("stop-6")
"""


def test_exception_classes_of_the_script_are_the_client_s_own(main, other):
    scope = main(IN_SCRIPT)
    error = other.failure(scope["boom"])
    assert type(error) is scope["QuotaError"]
    assert (str(error), error.user, error.limit) == ("u7 over 42", "u7", 42)
    assert 'File "<script>", line 12, in boom' in str(error.__cause__)
    error = other.failure(scope["weird"])
    assert type(error) is scope["Weird"]
    assert "Weird: stop-6" in printed(error)


def test_an_attribute_that_does_not_pickle_costs_only_itself():
    exc = TwoArguments("u", 1)
    exc.lock = threading.Lock()
    exc.me = exc
    got = there_and_back(exc)
    assert type(got) is TwoArguments
    assert vars(got) == {"user": "u", "limit": 1}
    http = there_and_back(urllib.error.HTTPError("http://x", 404, "gone", None, None))
    assert (type(http), http.code, http.msg) == (urllib.error.HTTPError, 404, "gone")


def test_arguments_that_do_not_pickle_leave_the_text():
    error = there_and_back(ValueError("bad", threading.Lock()))
    assert type(error) is RemoteError
    assert error.type_name == "ValueError"
    for word in ("ValueError: ('bad', <unlocked", "task 'shout'", "does not travel: TypeError: cannot pickle"):
        assert word in str(error)
    assert "in there_and_back" in error.remote_traceback
    assert error.remote_traceback in str(error.__cause__)


class Unloadable(Exception):
    def __reduce__(self):
        return _refuse, ()

    def __str__(self):
        return "the text"


def _refuse():
    raise KeyboardInterrupt


class NoText(Exception):
    def __str__(self):
        raise RuntimeError("no text")

    def __reduce__(self):
        raise SystemExit


class BecomesText(Exception):
    def __reduce__(self):
        return str, ("not an exception",)


class BadNotes(Exception):
    __notes__ = 7


class BadNote(ValueError):
    def __init__(self):
        super().__init__()
        self.__notes__ = ["good", NoText()]


@pytest.mark.parametrize(
    ("exc", "words"),
    [
        (Unloadable(), ["Unloadable: the text", "KeyboardInterrupt"]),
        (NoText(), ["NoText", "__str__ raises", "SystemExit"]),
        (BecomesText(), ["BecomesText", "makes a str of it"]),
    ],
)
def test_what_cannot_be_rebuilt_is_a_remote_error(exc, words):
    # Its own way is refused; the last resort, its parts, is kept from succeeding here by an argument.
    exc.args = (threading.Lock(),)
    error = there_and_back(exc)
    assert type(error) is RemoteError
    assert error.type_name == f"{__name__}.{type(exc).__name__}"
    for word in words:
        assert word in str(error)


def test_a_class_whose_own_way_fails_is_rebuilt_from_its_parts():
    assert type(there_and_back(Unloadable(3))) is Unloadable


def test_strange_notes():
    assert type(there_and_back(BadNotes("b"))) is BadNotes
    assert there_and_back(BadNote()).__notes__ == ["good", "<a NoText without text>"]


def test_one_bad_exception_in_a_chain_costs_only_itself():
    try:
        try:
            raise ValueError(threading.Lock())
        except ValueError as bad:
            raise RuntimeError("good") from bad
    except RuntimeError as error:
        got = decode_exception(encode_exception(error))
    assert type(got) is RuntimeError
    assert type(got.__cause__) is RemoteError
    assert isinstance(got.__cause__.__cause__, RemoteTraceback)


def test_groups_keep_their_members_and_their_causes():
    try:
        try:
            inner()
        except KeyError as error:
            raise TypeError("member") from error
    except TypeError as error:
        member = error
    deep = ExceptionGroup("deep", [member, OSError(2, "x")])
    deep.add_note("in the group")
    exc = BaseExceptionGroup("top", [deep, KeyboardInterrupt(), ValueError(threading.Lock())])
    got = there_and_back(exc)
    assert (type(got), got.message, len(got.exceptions)) == (BaseExceptionGroup, "top", 3)
    first, second, third = got.exceptions
    assert (type(first), first.message, first.__notes__) == (ExceptionGroup, "deep", ["in the group"])
    assert [type(each) for each in first.exceptions] == [TypeError, FileNotFoundError]
    assert type(first.exceptions[0].__cause__) is KeyError
    assert type(second) is KeyboardInterrupt
    assert type(third) is RemoteError
    assert "in inner" in printed(got)


class Sorted(ExceptionGroup):
    def __new__(cls, message, members, order=None):
        made = super().__new__(cls, message, sorted(members, key=str))
        made.order = order
        return made

    def __init__(self, message, members, order=None):
        super().__init__(message, members)

    def derive(self, members):
        return Sorted(self.message, members, self.order)


def test_a_group_of_a_class_of_its_own():
    got = there_and_back(Sorted("s", [ValueError("b"), KeyError("a")], order=3))
    assert type(got) is Sorted
    assert (got.order, [str(each) for each in got.exceptions]) == (3, ["'a'", "b"])


def test_chains_that_close_in_a_circle():
    first, second = ValueError("first"), KeyError("second")
    first.__cause__, second.__cause__ = second, first
    got = there_and_back(first)
    assert (type(got), type(got.__cause__)) == (ValueError, KeyError)
    assert isinstance(got.__cause__.__cause__, RemoteTraceback)


def test_an_endless_chain_is_cut(monkeypatch):
    monkeypatch.setattr(exceptions, "GRAPH_LIMIT", 5)
    exc = None
    for i in range(20):
        link = ValueError(i)
        link.__cause__ = exc
        exc = link
    got = there_and_back(exc)
    values = []
    while not isinstance(got, RemoteTraceback):
        values.append(got.args[0])
        got = got.__cause__
    assert values == [19, 18, 17, 16, 15]
    large = there_and_back(ExceptionGroup("large", [ValueError(i) for i in range(9)]))
    assert type(large) is RemoteError
    assert "leads to more than 5 others" in str(large)


def test_a_huge_text_is_cut_in_the_middle(monkeypatch):
    monkeypatch.setattr(exceptions, "TRACEBACK_LIMIT", 1_000)
    text = str(there_and_back(ValueError("x" * 100_000)).__cause__)
    assert len(text) < 1_200
    assert "characters left out" in text
    assert "Traceback (most recent call last)" in text


def test_an_exception_over_the_payload_limit_arrives_as_text(monkeypatch):
    monkeypatch.setattr(exceptions, "PAYLOAD_LIMIT", 10_000)
    exc = ValueError("short")
    exc.data = b"x" * 20_000
    error = there_and_back(exc)
    assert type(error) is RemoteError
    assert "ValueError: short" in str(error)
    assert "it takes 2" in str(error)


def test_an_exception_that_cannot_be_looked_at_arrives_as_text():
    class Hidden(Exception):
        @property
        def __notes__(self):
            raise LookupError("no notes for you")

    error = there_and_back(Hidden("seen"))
    assert type(error) is RemoteError
    assert "Hidden: seen" in str(error)
    assert "does not travel: LookupError: no notes for you" in str(error)


def test_reducers_registered_for_an_exception_are_used():
    class Local(Exception):
        pass

    copyreg.pickle(Local, lambda exc: (Local, ("registered",)))
    try:
        assert there_and_back(Local("own")).args == ("registered",)
    finally:
        del copyreg.dispatch_table[Local]


def test_what_c_extensions_raise_by_another_constructor():
    # As exception types made in C may be: __new__ of their builtin base refuses them.
    def only_by_its_class(cls, *args):
        raise TypeError("not safe")

    body, _ = exception_body.dump_body(ValueError(1), ())
    assert type(exception_body.load_body(body, ())) is ValueError
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(exception_body, "_rebuild", only_by_its_class)
        body, _ = exception_body.dump_body(ValueError(1), ())
        assert type(exception_body.load_body(body, ())) is ValueError


@given(st.binary(max_size=50))
def test_decoding_never_raises(payload):
    assert isinstance(decode_exception(payload), RemoteError)


@pytest.mark.parametrize(
    "content", [None, (), ("text", []), ("text", [(1,)]), ("text", [("T", "t", b"\x80")]), (1, [()])]
)
def test_decoding_damaged_structure_never_raises(content):
    assert isinstance(decode_exception(pickle.dumps(content)), RemoteError)


def test_no_frame_and_no_exception_is_kept_alive():
    class Held:
        pass

    def fail():
        held = Held()
        references.append(weakref.ref(held))
        raise WithLock("u", 1)  # every form of encoding is tried; no name for it here, which would be a cycle

    references = []
    gc.disable()
    try:
        try:
            fail()
        except TwoArguments as error:
            got = decode_exception(encode_exception(error))
        assert references[0]() is None
        references.append(weakref.ref(got))
        del got
        assert references[1]() is None
    finally:
        gc.enable()


def test_formatting_that_fails_still_gives_the_text(monkeypatch):
    def fail(*args):
        raise RuntimeError("no formatting")

    monkeypatch.setattr(traceback, "format_exception", fail)
    got = there_and_back(ValueError("v"))
    monkeypatch.undo()
    assert "ValueError: v\n(its traceback cannot be formatted: RuntimeError: no formatting)" in str(got.__cause__)


def test_an_exception_that_was_never_raised():
    got = decode_exception(encode_exception(ValueError("v")))
    assert str(got.__cause__) == '\n"""\nValueError: v\n"""'
    assert sys.exception() is None
