"""Random values and damaged files, and what every reader owes them: it takes them, or says one sentence.

The same examples each time, about two minutes of them in all; `TRACE_FUZZ=20 pytest tests -k fuzz` tries twenty times
as many, new ones each time.
"""

import atexit
import copy
import functools
import os
from pathlib import Path

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st

from trace.io.errors import UserError

TIMES = int(os.environ.get("TRACE_FUZZ", "0"))


TRIED = [0]
"""How many examples this process has tried."""


def examples(count):
    """Over ``@given``: so many examples, counted."""
    number = settings(
        max_examples=count * (TIMES or 1),
        derandomize=not TIMES,
        deadline=None,
        database=None,
        suppress_health_check=list(HealthCheck),
    )

    def decorated(test):
        inner = test.hypothesis.inner_test

        @functools.wraps(inner)
        def counted(*arguments, **options):
            TRIED[0] += 1
            return inner(*arguments, **options)

        test.hypothesis.inner_test = counted
        return number(test)

    return decorated


if tally := os.environ.get("TRACE_FUZZ_TALLY"):
    atexit.register(lambda: Path(tally).write_text(str(TRIED[0])))


NUMBERS = st.one_of(
    st.integers(), st.floats(), st.sampled_from([0, -1, 1, 2**63, -(2**63), 10**400, 1e308, -1e308, 1e-320])
)
SCALARS = st.one_of(st.none(), st.booleans(), NUMBERS, st.text(max_size=8))
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=6), inner, max_size=3),
    max_leaves=6,
)


def taken_or_told(read, *arguments, **options):
    """What a reader gives, or None where it says one sentence."""
    try:
        return read(*arguments, **options)
    except UserError:
        return None


def places(value, path=()):
    """Where something stands in a record."""
    yield path
    if isinstance(value, dict):
        for key, entry in value.items():
            yield from places(entry, (*path, key))
    elif isinstance(value, list):
        for i, entry in enumerate(value):
            yield from places(entry, (*path, i))


def put(value, path, other):
    """The value with another one in that place."""
    if not path:
        return other
    value = copy.copy(value)
    value[path[0]] = put(value[path[0]], path[1:], other)
    return value


@st.composite
def changed(draw, value):
    """A record with one to three of its numbers, names or branches replaced."""
    for _ in range(draw(st.integers(1, 3))):
        value = put(value, draw(st.sampled_from(list(places(value)))), draw(VALUES))
    return value


@st.composite
def damaged(draw, content):
    """Bytes with some set, cut off, doubled or inserted."""
    data = bytearray(content)
    for _ in range(draw(st.integers(1, 4))):
        at = draw(st.integers(0, max(0, len(data) - 1)))
        how = draw(st.sampled_from(["set", "cut", "double", "insert"]))
        if how == "set" and data:
            data[at] = draw(st.integers(0, 255))
        elif how == "cut":
            del data[at:]
        elif how == "double":
            data += data[at:]
        else:
            data[at:at] = draw(st.binary(max_size=8))
    return bytes(data)
