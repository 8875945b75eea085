"""What the hot path brings with it, and what is relied on in cloudpickle."""

import enum
import json
import subprocess
import sys
import types

from slipstream.serde import borrowed

START = """
import sys, json
before = set(sys.modules)
from slipstream.serde import callables, exceptions, values
callables.callable_label(len)
for value in (5, "x", None):
    values.decode_value(values.encode_value(value))
fn, args, kwargs = values.decode_call(values.encode_call(json.dumps, ([1, 2],), {})) if PICKLER else (
    values.decode_call(values.encode_call(json.dumps, (1,), {})))
assert fn is json.dumps
print(json.dumps(sorted(set(sys.modules) - before)))
"""


def imported(pickler):
    source = f"PICKLER = {pickler}\n{START}"
    command = [sys.executable, "-c", source]
    return json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout)


def test_scalars_and_functions_by_name_need_no_pickler():
    names = imported(pickler=False)
    ours = {name for name in names if name.startswith("slipstream")}
    assert ours == {
        "slipstream",
        "slipstream.serde",
        "slipstream.serde.callables",
        "slipstream.serde.error_text",
        "slipstream.serde.exception_body",
        "slipstream.serde.exceptions",
        "slipstream.serde.imports",
        "slipstream.serde.plain_exceptions",
        "slipstream.serde.values",
    }
    heavy = {"cloudpickle", "concurrent.futures", "logging", "traceback", "inspect", "msgspec", "hashlib"}
    assert not heavy & set(names)
    assert "cloudpickle" in imported(pickler=True)


def test_what_is_borrowed_from_cloudpickle_does_what_is_relied_on():
    class Made:
        def price(self):
            return 3

    class Kind(enum.Enum):
        A = 1

        def twice(self):
            return 2 * self.value

    identifier = borrowed.tracker_id(Made)
    assert borrowed.tracker_id(Made) == identifier
    assert borrowed.TRACKED[identifier] is Made
    assert borrowed.lookup_or_track(identifier, int) is Made
    made = type("Made", (), {})
    borrowed.class_setstate(made, borrowed.class_getstate(Made))
    assert made.price(None) == 3
    maker, arguments, state, _, _, setter = borrowed.dynamic_class_reduce(Kind)
    assert arguments[-2:] == (borrowed.tracker_id(Kind), None)
    untracked = maker(*arguments[:-2], None, None)
    assert untracked is not Kind
    assert borrowed.TRACKED[borrowed.tracker_id(Kind)] is Kind
    assert setter is borrowed.class_setstate
    borrowed.class_setstate(untracked, state)
    assert untracked["A"].twice() == 2
    assert borrowed.BUILTIN_TYPE_NAMES[types.FunctionType] in ("FunctionType", "LambdaType")
    assert borrowed.class_reduce(type(None)) == (type, (None,))
    assert borrowed.subimport("os.path").__name__ == "posixpath"
    kind, parts = borrowed.code_reduce((lambda: 3).__code__)
    assert eval(kind(*parts)) == 3
    assert classmethod in borrowed.DISPATCH_TABLE
