"""Checks of values that were read from JSON: what passes, and what is said of what does not."""

import math

import pytest

from candidly.store import validation
from candidly.store.validation import count, distinct, expect, instance, list_of, mapping, one_of, optional, record

PASS = {
    "text": (validation.text, ["", "a" * 1_000_000]),
    "flag": (validation.flag, [True, False]),
    "number": (validation.number, [0, -1.5, 10**300]),
    "share": (validation.share, [0, 1, 0.5]),
    "count": (count(2, 4), [2, 4]),
    "count without end": (count(0), [0, 10**30]),
    "instance": (instance(str, dict), ["", {}]),
    "one of": (one_of(("a", "b")), ["a", "b"]),
    "optional": (optional(count(0)), [None, 3]),
    "list": (list_of(count(0), 1, 2), [[0], [0, 0]]),
    "distinct": (distinct(list_of(count(0), 0)), [[], [0, 1]]),
    "mapping": (mapping(count(0)), [{}, {"a": 1}]),
    "record": (record({"a": count(0)}), [{"a": 1}]),
}
REFUSE = {
    "text": [1, b"a", None],
    "flag": [0, 1, "true", None],
    "number": [True, math.inf, math.nan, 10**400, "1"],
    "share": [-0.1, 1.1, math.nan, True],
    "count": [1, 5, 2.0, True, "2"],
    "count without end": [-1, 0.0],
    "instance": [1, None],
    "one of": ["c", ["a"], 1],
    "optional": [-1, "x"],
    "list": [[], [0, 0, 0], [-1], (0,), "0"],
    "distinct": [[0, 0], [-1]],
    "mapping": [{"a": -1}, {1: 1}, []],
    "record": [{}, {"a": 1, "b": 2}, {"a": -1}, []],
}


@pytest.mark.parametrize("name", PASS)
def test_good_values_pass_and_others_do_not(name):
    check, good = PASS[name]
    for value in good:
        check(value, "it")
    for value in REFUSE[name]:
        with pytest.raises(ValueError, match="it"):
            check(value, "it")


def test_messages_say_where_and_what():
    check = list_of(record({"a": count(1, 3)}), 0)
    with pytest.raises(ValueError, match=r"^rows\[1\]\['a'\] is 4$"):
        check([{"a": 1}, {"a": 4}], "rows")
    with pytest.raises(ValueError, match=r"^rows is '4' instead of a list of records$"):
        expect(check, "a list of records")("4", "rows")
    with pytest.raises(ValueError, match=r"^rows is ") as caught:
        check("4" * 10**6, "rows")
    assert len(str(caught.value)) < 250
