"""Critical-difference diagrams: what is drawn, where, and that it does not change."""

import itertools
import re
import sys

import matplotlib
import pytest

from candidly.bench import diagram
from candidly.bench.diagram import draw
from candidly.bench.scores import Scores
from candidly.bench.statistics import critical_distance, ranks


def scores(methods, datasets):
    """Accuracies whose ranks vary a little from dataset to dataset."""
    return Scores(
        {
            (f"d{j}", method): {0: 0.9 - 0.01 * i - 0.013 * ((7 * i + 5 * j) % 4)}
            for i, method in enumerate(methods)
            for j in range(datasets)
        }
    )


def drawn(scores, tmp_path, monkeypatch):
    """Return the axes that `draw` saves, and the boxes of its texts in pixels."""
    kept = []
    original = diagram._figure
    monkeypatch.setattr(diagram, "_figure", lambda *arguments: kept.append(original(*arguments)) or kept[0])
    draw(scores, tmp_path / "ranks.png")
    axes = kept[0].axes[0]
    return axes, {text: text.get_window_extent() for text in axes.texts}


@pytest.mark.parametrize("ending", ["svg", "pdf", "png", "SVG"])
def test_the_same_scores_give_the_same_bytes(tmp_path, ending):
    paths = [tmp_path / f"{i}.{ending}" for i in range(2)]
    for path in paths:
        draw(scores(["proden", "cc", "conf+proden"], 4), path)
    first, second = (path.read_bytes() for path in paths)
    assert first == second
    assert len(first) > 1000
    assert b"date" not in first.lower()


def test_settings_of_the_user_stay_and_do_not_matter(tmp_path):
    draw(scores(["proden", "cc"], 4), tmp_path / "a.svg")
    with matplotlib.rc_context({"svg.hashsalt": "other", "text.usetex": True, "font.family": ["serif"]}):
        before = dict(matplotlib.rcParams)
        draw(scores(["proden", "cc"], 4), tmp_path / "b.svg")
        assert dict(matplotlib.rcParams) == before
    assert (tmp_path / "a.svg").read_bytes() == (tmp_path / "b.svg").read_bytes()


@pytest.mark.parametrize(("number", "datasets"), [(2, 1), (3, 12), (7, 12), (19, 2), (30, 40)])
def test_no_text_lies_on_another_or_outside(tmp_path, monkeypatch, number, datasets):
    names = [f"conf+method{i} (a longer suffix)" if i % 3 else f"m{i}" for i in range(number)]
    axes, boxes = drawn(scores(names, datasets), tmp_path, monkeypatch)
    assert set(names) <= {text.get_text() for text in axes.texts}
    for (one, box), (two, other) in itertools.combinations(boxes.items(), 2):
        assert not box.overlaps(other), (one.get_text(), two.get_text())
    width, height = axes.figure.canvas.get_width_height()
    for text, box in boxes.items():
        assert 0 <= box.x0 < box.x1 <= width, text.get_text()
        assert 0 <= box.y0 < box.y1 <= height, text.get_text()


def test_methods_hang_at_their_ranks(tmp_path, monkeypatch):
    given = scores(["proden", "rc", "cc", "pop", "conf+rc", "conf+cc", "conf+pop"], 20)
    found = ranks(given)
    axes, _ = drawn(given, tmp_path, monkeypatch)
    labels = {text.get_text(): text.get_position() for text in axes.texts}
    one, two = labels["1"][0], labels["2"][0]
    assert one < two
    elbows = [line for line in axes.lines if len(line.get_xdata()) == 3]
    for method, rank in found.average.items():
        x, y = labels[method]
        start, _, end = min(
            (line.get_xdata() for line in elbows if line.get_ydata()[2] == y), key=lambda ends: abs(ends[2] - x)
        )
        assert start == pytest.approx(one + (rank - 1) * (two - one))
        assert abs(end - x) < 0.1
        assert (end - x) * (start - end) > 0  # the line ends on the inner side of the name
        assert f"{rank:.2f}" in labels
    thick = [line.get_xdata() for line in axes.lines if line.get_linewidth() == 4]
    spans = [[1 + (x - one) / (two - one) for x in ends] for ends in thick]
    expected = [[found.average[group[0]], found.average[group[-1]]] for group in found.groups]
    assert len(expected) > 1
    assert spans == [pytest.approx(span, abs=0.03) for span in expected]


def test_the_critical_distance_is_drawn_to_scale(tmp_path, monkeypatch):
    axes, _ = drawn(scores("abcdefg", 12), tmp_path, monkeypatch)
    labels = {text.get_text(): text.get_position() for text in axes.texts}
    distance = critical_distance(7, 12)
    bar = next(line.get_xdata() for line in axes.lines if set(line.get_ydata()) == {diagram.DISTANCE})
    assert bar[1] - bar[0] == pytest.approx(distance * (labels["2"][0] - labels["1"][0]))
    assert f"critical distance {distance:.2f}" in labels


def test_a_distance_beyond_the_axis_says_so(tmp_path, monkeypatch):
    axes, _ = drawn(scores("abcdefg", 2), tmp_path, monkeypatch)
    texts = [text.get_text() for text in axes.texts]
    # 2.948·√(7·8 / 12) = 6.37 > 6
    assert "critical distance 6.37, longer than the axis" in texts
    assert [line.get_marker() for line in axes.lines].count(">") == 1


def test_bars_do_not_touch(tmp_path, monkeypatch):
    axes, _ = drawn(scores([f"m{i:02}" for i in range(30)], 40), tmp_path, monkeypatch)
    bars = [(line.get_ydata()[0], *line.get_xdata()) for line in axes.lines if line.get_linewidth() == 4]
    for (y, start, end), (other, begin, stop) in itertools.combinations(bars, 2):
        assert y != other or end < begin or stop < start
    assert len(bars) > 3


@pytest.mark.parametrize(
    ("number", "datasets", "title"),
    [
        (2, 3, "Average ranks of 2 methods over 3 datasets, too few for Friedman's test"),
        (3, 1, "Average ranks of 3 methods over 1 dataset, too few for Friedman's test"),
        (3, 2, "Average ranks of 3 methods over 2 datasets, Friedman's test p = "),
        (19, 40, "Average ranks of 19 methods over 40 datasets, Friedman's test p < 0.001"),
    ],
)
def test_titles(tmp_path, monkeypatch, number, datasets, title):
    axes, _ = drawn(scores([f"m{i}" for i in range(number)], datasets), tmp_path, monkeypatch)
    assert any(text.get_text().startswith(title) for text in axes.texts)


def test_names_are_no_formulas_and_no_markup(tmp_path):
    names = ["$x$ $\\frac{1}{0}$", "$", "</svg><script>-->", "conf+" + "long" * 1000, "\\alpha_{", ""]
    draw(scores(names, 3), tmp_path / "ranks.svg")
    text = (tmp_path / "ranks.svg").read_text(encoding="utf-8")
    assert "<script" not in re.sub(r"<!--.*?-->", "", text, flags=re.DOTALL)
    assert text.count("</svg>") == 1 + len(re.findall(r"<!--[^>]*</svg>", text))
    width = float(re.search(r'width="([\d.]+)pt"', text)[1])
    assert width < 72 * 20


def test_ties_everywhere(tmp_path):
    draw(Scores({(d, m): {0: 0.5} for d in "ab" for m in "xyz"}), tmp_path / "ranks.svg")
    assert "2.00" in (tmp_path / "ranks.svg").read_text()


def test_why_there_is_no_diagram(tmp_path):
    path = tmp_path / "ranks.svg"
    with pytest.raises(ValueError, match="no dataset on which every method has a cell"):
        draw(Scores({("a", "cc"): {0: 0.5}, ("b", "pop"): {0: 0.5}}), path)
    with pytest.raises(ValueError, match="no diagram of 1 method"):
        draw(Scores({("a", "cc"): {0: 0.5}}), path)
    with pytest.raises(ValueError, match=r"ranks\.jpg ends in '\.jpg'; choose one of \.pdf, \.png, \.svg"):
        draw(scores("ab", 2), tmp_path / "ranks.jpg")
    assert not list(tmp_path.iterdir())


def test_a_missing_matplotlib_says_what_to_install(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(ModuleNotFoundError, match=r"pip install 'candidly\[report\]'"):
        draw(scores("ab", 2), tmp_path / "ranks.svg")
