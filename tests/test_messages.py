"""Text for people: what is escaped, cut and listed, and where warnings point."""

import subprocess
import sys
import threading
import time
import unicodedata
import warnings

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from candidly import encode, messages
from candidly.messages import cut, did_you_mean, listed, neutralise, visible, warn, width
from candidly.tables import delimited

texts = st.text(st.characters(exclude_categories=[]), max_size=30)  # surrogates too


@given(texts)
def test_visible_text_is_printable_and_stays_as_it_is(text):
    shown = visible(text)
    assert shown.isprintable()
    assert visible(shown) == shown


@given(st.text(st.characters(exclude_categories=["C"]), max_size=60), st.integers(2, 20))
def test_cut_text_fits(text, most):
    short = cut(text, most)
    assert width(short) <= most
    assert len(short) <= 2 * most + 1
    assert short == text or (short.endswith("…") and text.startswith(short[:-1]))


def test_a_pile_of_accents_is_cut():
    assert len(cut("a" + "\u0301" * 500, 10)) <= 21


@pytest.mark.parametrize("start", ["", "'", "a", "5", "\t", " ", "-5", "''"])
def test_cells_are_neutralised_alike_in_python_and_arrow(start):
    follow = [chr(code) for code in range(0x3001) if unicodedata.category(chr(code)) != "Cs"]
    cells = [f"{start}{letter}{end}" for letter in follow for end in ("", "=a", "1")]
    assert delimited.neutralise_column(pa.array(cells)).to_pylist() == [neutralise(cell) for cell in cells]


@given(st.text(st.characters(exclude_categories=["Cs"]) | st.sampled_from("=+-@'\t\n 15.e")))
def test_any_cell_is_neutralised_alike_in_python_and_arrow(cell):
    assert delimited.neutralise_column(pa.array([cell])).to_pylist() == [neutralise(cell)]


def test_all_separators_count_as_blanks_before_a_formula():
    for code in range(sys.maxunicode + 1):
        if unicodedata.category(chr(code)).startswith("Z"):
            assert neutralise(f"{chr(code)}=a").startswith("'"), hex(code)


def test_lists_say_how_many_more():
    assert listed([]) == ""
    assert listed("abcde") == "a, b, c, d, e"
    assert listed("abcdef") == "a, b, c, d, e and 1 more"
    assert listed(iter("abc"), most=1, mark="; ") == "a and 2 more"


def test_hints_ignore_case_and_blanks():
    assert did_you_mean("LABEL", ["size", " label "]) == " (did you mean ' label '?)"
    assert did_you_mean(7, [70, "x"]) == " (did you mean 70?)"


def test_warnings_point_at_the_line_of_the_user():
    with pytest.warns(UserWarning, match="the same candidates") as caught:
        encode([["a", "b"], ["a", "b"]])
    assert caught[0].filename == __file__


def test_modules_that_only_sound_alike_are_the_users(tmp_path):
    (tmp_path / "candidly_notes.py").write_text("from candidly.messages import warn\nwarn('look here')\n")
    call = [sys.executable, "-c", "import candidly_notes"]
    path = ":".join([str(tmp_path), *sys.path])
    done = subprocess.run(call, capture_output=True, text=True, env={"PYTHONPATH": path}, check=False)
    assert "candidly_notes.py:2: UserWarning: look here" in done.stderr


def test_warnings_of_a_class_of_their_own():
    with pytest.warns(DeprecationWarning, match="old"):
        warn(DeprecationWarning("old"))


def test_long_work_is_shown_and_removed(capsys, monkeypatch):
    monkeypatch.setattr(messages, "_PATIENCE", 0.05)
    with messages.busy("reading rows\x1b.csv", shown=True):
        time.sleep(0.4)
    shown = capsys.readouterr().err
    assert "\rreading rows\\x1b.csv [0 s]" in shown
    assert shown.split("\r")[-2].strip() == shown.split("\r")[-1] == ""
    with messages.busy("reading", shown=False):
        time.sleep(0.2)
    monkeypatch.setattr(messages, "_PATIENCE", 60)
    with messages.busy("reading", shown=True):
        pass
    assert capsys.readouterr().err == ""


def test_errors_pass_while_work_is_shown(capsys):
    with pytest.raises(ValueError, match="broken"), messages.busy("reading", shown=True):
        raise ValueError("broken")
    assert capsys.readouterr().err == ""


def test_quiet_ignores_warnings_and_restores_the_filters_of_all_threads():
    before = list(warnings.filters)

    def work():
        for _ in range(50):
            with messages.quiet():
                warnings.warn("hidden", stacklevel=1)

    threads = [threading.Thread(target=work) for _ in range(4)]
    with warnings.catch_warnings(record=True) as caught:
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert not caught
    assert warnings.filters == before
