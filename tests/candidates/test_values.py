"""Single values: which are missing, and which text they stand for."""

from decimal import Decimal
from fractions import Fraction

import numpy as np
import pandas as pd
import pytest

from candidly.candidates.values import as_integers, as_text, integer_text, is_missing, plain, unmasked


@pytest.mark.parametrize(
    "value", [None, float("nan"), np.float32("nan"), np.nan, pd.NA, pd.NaT, np.datetime64("NaT"), Decimal("NaN")]
)
def test_missing(value):
    assert is_missing(value)
    assert is_missing(value, blank=True)


@pytest.mark.parametrize("value", [0, False, "nan", [float("nan")], (), np.array([np.nan, 1.0]), float("inf")])
def test_not_missing(value):
    assert not is_missing(value)
    assert not is_missing(value, blank=True)


@pytest.mark.parametrize("value", ["", " ", "\t\n", b"", b" "])
def test_blank_text_is_missing_on_request(value):
    assert not is_missing(value)
    assert is_missing(value, blank=True)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (7, "7"),
        (7.0, "7"),
        (np.float32(7), "7"),
        (np.int8(-7), "-7"),
        (-0.0, "0"),
        (1e20, "100000000000000000000"),
        (0.1, "0.1"),
        (np.float32(0.5), "0.5"),
        (float("inf"), "inf"),
        (Decimal("7.00"), "7"),
        (Decimal("0.10"), "0.1"),
        (Decimal("12345678901234567891"), "12345678901234567891"),
        (Decimal("7.000000000000000000001"), "7"),
        (Fraction(1, 4), "0.25"),
        (True, "True"),
        (np.True_, "True"),
        ("7.0", "7.0"),
        (np.str_("cat"), "cat"),
        (b"cat", "cat"),
        (b"\xff", r"\xff"),
    ],
)
def test_texts(value, text):
    assert as_text(value) == text
    assert type(as_text(value)) is str


@pytest.mark.parametrize(
    ("text", "integer"),
    [
        ("0", "0"),
        ("-7.0", "-7"),
        ("7.000", "7"),
        ("-0", None),
        ("07", None),
        ("7.", None),
        ("7.5", None),
        ("1e3", None),
    ],
)
def test_integers_in_text(text, integer):
    assert integer_text(text) == integer


def test_whole_numbers_become_integers_only_together():
    assert as_integers([1.0, 2]) == [1, 2]
    assert {type(name) for name in as_integers([1.0, 2])} == {int}
    assert as_integers([1.0, 2.5]) == [1.0, 2.5]
    assert as_integers([1.0, "a"]) == [1.0, "a"]


def test_plain_values():
    assert type(plain(np.int64(7))) is int
    assert type(plain(np.array(7.5))) is float
    assert plain("a") == "a"
    assert plain([1]) == [1]


def test_masked_values():
    assert plain(np.ma.masked) is None
    assert is_missing(np.ma.masked)
    assert unmasked(np.ma.array([1, 2], mask=[1, 0])).tolist() == [None, 2]
    assert unmasked(np.ma.array([1, 2])).dtype == int
    assert np.isnat(unmasked(np.ma.array(np.array([1, 2], "M8[ns]"), mask=[1, 0]))).tolist() == [True, False]
    date = np.datetime64(1, "ns")
    assert plain(date) == date
    assert type(plain(date)) is np.datetime64
