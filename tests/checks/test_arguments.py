"""Checks of arguments: what is a number, a fraction, a flag or a choice, and what the messages say."""

import re
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from typing import Literal

import numpy as np
import pytest
import torch

from candidly.checks import arguments

INTEGERS = [3, np.int64(3), np.uint8(3), np.array(3), torch.tensor(3), 10**30]
REALS = [0.5, 1, np.float32(0.5), np.float64(0.5), np.array(0.5), torch.tensor(0.5), Fraction(1, 2)]
NOT_NUMBERS = [
    True,
    np.bool_(True),
    torch.tensor(True),
    "3",
    b"3",
    None,
    [3],
    (3,),
    {3},
    np.array([3]),
    3j,
    int,
    object(),
]


@pytest.mark.parametrize("value", INTEGERS)
def test_integers_of_all_libraries_are_integers(value):
    assert arguments.integer("n", value, least=0) == int(value)
    assert type(arguments.integer("n", value)) is int


@pytest.mark.parametrize("value", [*REALS, *INTEGERS])
def test_numbers_of_all_libraries_are_numbers(value):
    assert arguments.real("x", value, least=0) == float(value)
    assert type(arguments.real("x", value)) is float


@pytest.mark.parametrize("check", [arguments.integer, arguments.real, arguments.fraction])
@pytest.mark.parametrize("value", [*NOT_NUMBERS, float("nan"), float("inf"), -np.inf, Decimal("0.5")])
def test_other_values_are_no_numbers(check, value):
    with pytest.raises(ValueError, match=r"^speed is .*; it must ") as caught:
        check("speed", value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("value", [0.5, 2.0, np.float64(2)])
def test_fractions_are_no_integers(value):
    with pytest.raises(ValueError, match=f"^n is {re.escape(repr(value))}; it must be an integer$"):
        arguments.integer("n", value)


@pytest.mark.parametrize(
    ("bounds", "wrong", "words"),
    [
        ({"least": 1}, 0, "of at least 1"),
        ({"most": 1}, 2, "of at most 1"),
        ({"above": 0}, 0, "above 0"),
        ({"below": 1}, 1, "below 1"),
        ({"least": 0, "most": 1}, 1.5, "from 0 to 1"),
        ({"above": 0, "below": 1}, 1, "between 0 and 1"),
        ({"above": 0, "most": 1}, 0, "above 0 and at most 1"),
        ({"least": 0, "below": 1}, 1, "of at least 0 and below 1"),
    ],
)
def test_bounds_are_kept_and_said(bounds, wrong, words):
    assert arguments.real("x", 0.5 if "least" not in bounds or bounds["least"] < 1 else 1, **bounds)
    with pytest.raises(ValueError, match=f"x is {wrong}; it must be a .*number {words}$"):
        arguments.real("x", wrong, **bounds)


def test_a_number_too_large_for_a_float_is_not_finite():
    with pytest.raises(ValueError, match=r"x is 1000.*; it must be a finite number"):
        arguments.real("x", 10**400)


@pytest.mark.parametrize("value", [0, 1, "no", None, np.array([True]), []])
def test_flags_are_true_or_false(value):
    assert arguments.flag("on", np.bool_(True)) is True
    with pytest.raises(ValueError, match=r"on is .*; use True or False"):
        arguments.flag("on", value)


@dataclass(frozen=True)
class Settings:
    steps: int = 1
    rate: float = 0.5
    alpha: float | None = None
    kind: Literal["a", "b"] = "a"
    loud: bool = False
    name: str = "x"
    other: object = None

    def __post_init__(self):
        arguments.settings(self, steps={"least": 1}, rate={"above": 0}, alpha={"least": 0, "most": 1})


@pytest.mark.parametrize(
    "wrong",
    [
        *({"steps": value} for value in (0, 1.0, True, "1", None)),
        *({"rate": value} for value in (0, float("nan"), False, "1", None)),
        *({"alpha": value} for value in (2, "0.1", True)),
        *({"kind": value} for value in ("c", None, 1, ["a"])),
        *({"loud": value} for value in ("no", 1, None)),
        *({"name": value} for value in ("", 3, None)),
    ],
)
def test_settings_are_checked_by_their_annotations(wrong):
    with pytest.raises(ValueError, match=f"^{next(iter(wrong))} is "):
        Settings(**wrong)


def test_settings_become_plain_and_keep_whole_numbers():
    made = Settings(np.int64(2), np.float32(0.5), np.array(0.25), loud=np.bool_(True))
    assert [type(value) for value in (made.steps, made.rate, made.alpha, made.loud)] == [int, float, float, bool]
    assert type(Settings(rate=1).rate) is int  # hashes of results depend on it


def test_long_values_are_cut():
    assert len(arguments.shown("x" * 10**6)) < 200
    assert arguments.shown(np.zeros((3, 3))).count("\n") == 0
