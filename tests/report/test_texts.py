"""Names and numbers as the page shows them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from candidly.report.texts import duration, fixed, percent, rounded, visible

texts = st.text(st.characters(exclude_categories=[]), max_size=30)  # surrogates too


@given(texts)
def test_visible_text_is_printable_and_stays_as_it_is(text):
    shown = visible(text)
    assert shown.isprintable()
    assert shown.strip()
    assert visible(shown) == shown
    shown.encode()


@given(st.text(st.characters(categories=["L", "N", "P"]), min_size=1))
def test_ordinary_text_is_not_touched(text):
    assert visible(text) == text


@pytest.mark.parametrize(
    "code", [*range(0x20), 0x7F, 0x9B, 0xAD, 0x200B, 0x200F, 0x202E, 0x2028, 0x2066, 0xFEFF, 0xDFFF]
)
def test_what_cannot_be_seen_becomes_an_escape(code):
    assert visible(f"a{chr(code)}b") not in (f"a{chr(code)}b", "ab")
    assert chr(code) not in visible(f"a{chr(code)}b")


@pytest.mark.parametrize(
    ("shown", "expected"),
    [
        (rounded(0.0), "0"),
        (rounded(123456.7), "123,457"),
        (rounded(1e30), "1e+30"),
        (fixed(-0.5), "−0.500"),
        (fixed(1e300), "1e+300"),
        (percent(0.12345), "12.3\u00a0%"),
        (percent(None), "–"),
        (duration(0), "0.0 s"),
        (duration(59.99), "1 min 0 s"),
        (duration(3600), "1 h 0 min"),
    ],
)
def test_numbers(shown, expected):
    assert shown == expected
