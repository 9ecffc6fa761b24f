"""Figures as files: their formats, the same bytes for the same figure, and nothing half written."""

import sys

import pytest

from candidly.store.figures import FORMATS, check_format, write_figure

figure = pytest.importorskip("matplotlib.figure")


def draw():
    made = figure.Figure(figsize=(1, 1))
    made.subplots().plot([0, 1], [1, 0], label="costs $1 and $2")
    return made


@pytest.mark.parametrize("suffix", FORMATS)
def test_the_same_figure_gives_the_same_bytes(suffix, tmp_path):
    for name in ("a", "b"):
        write_figure(tmp_path / f"{name}{suffix}", draw)
    first = (tmp_path / f"a{suffix}").read_bytes()
    assert first == (tmp_path / f"b{suffix}").read_bytes()
    assert len(first) > 500


@pytest.mark.parametrize("name", ["plot.gif", "plot", "svg"])
def test_other_formats_are_refused(name):
    with pytest.raises(ValueError, match=r"choose one of \.pdf, \.png, \.svg"):
        check_format(name)
    check_format("plot.SVG")


def test_a_figure_that_cannot_be_drawn_leaves_the_old_file(tmp_path):
    (tmp_path / "a.svg").write_text("old")
    with pytest.raises(ZeroDivisionError):
        write_figure(tmp_path / "a.svg", lambda: 1 / 0)
    assert [(path.name, path.read_text()) for path in tmp_path.iterdir()] == [("a.svg", "old")]


def test_figures_need_matplotlib(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(ModuleNotFoundError, match=r"pip install 'candidly\[report\]'"):
        write_figure(tmp_path / "a.svg", draw)
