"""Charts: that they say what the numbers say, and never break."""

import itertools
import re
from xml.etree import ElementTree

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from candidly.report import charts

SVG = "{http://www.w3.org/2000/svg}"
values = st.floats(allow_nan=True, allow_infinity=True) | st.none()


def parsed(svg):
    """Return the elements of a chart, after checking what holds for all of them."""
    root = ElementTree.fromstring(svg.replace("<svg", '<svg xmlns="http://www.w3.org/2000/svg"', 1))
    assert root.get("role") == "img"
    title, words = (root.find(f"{SVG}{name}") for name in ("title", "desc"))
    assert title.text
    assert words.text
    assert root.get("aria-labelledby").split() == [title.get("id"), words.get("id")]
    assert not re.search(r"nan|inf\b|style=|fill=|stroke=", re.sub(r">[^<]*<", "><", svg))
    return root


def marks(root, tag, kind):
    return [one for one in root.iter(SVG + tag) if kind in one.get("class", "").split()]


def heights(root, kind):
    return [float(one.get("height")) for one in marks(root, "rect", kind)]


def constant(mean):
    return {"mean": mean, "low": mean, "high": mean}


def test_bars_are_as_high_as_the_counts():
    root = parsed(charts.bars([10, 40, 0], [40, 10, 0]))
    assert heights(root, "before") == [pytest.approx(52.5), pytest.approx(210)]
    assert heights(root, "after") == [pytest.approx(210), pytest.approx(52.5)]
    assert marks(root, "rect", "after")[0].find(f"{SVG}title").text == "1 candidate, after: 40 rows"


@pytest.mark.parametrize(("before", "after"), [([1], [1]), ([0] * 999 + [3], [3] + [0] * 999), ([0, 0], [0, 0])])
def test_bars_of_any_number_of_classes(before, after):
    root = parsed(charts.bars(before, after))
    assert 1 <= len(heights(root, "before")) <= 24


@given(st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9)), min_size=1, max_size=300))
def test_groups_of_sizes_lose_nothing(counts):
    before, after = map(list, zip(*counts, strict=True))
    groups = charts.group_sizes(before, after)
    assert len(groups) <= 24
    assert sum(group[1] for group in groups) == sum(before)
    assert sum(group[2] for group in groups) == sum(after)
    assert groups[0] == ("1", before[0], after[0])
    ends = [int(number) for group in groups for number in (group[0].split("–") * 2)[:2]]
    assert ends[0] == 1
    assert all(low == high + 1 for high, low in zip(ends[1:-1:2], ends[2::2], strict=True))


def test_a_curve_breaks_where_numbers_are_missing():
    mean = [3.0, 2.0, None, 1.0, 0.5, None, 0.2]
    root = parsed(charts.curve("loss", "Loss", constant(mean), 7))
    assert [len(line.get("points").split()) for line in marks(root, "polyline", "line")] == [2, 2]
    assert len(marks(root, "circle", "dot")) == 1
    assert len(marks(root, "polygon", "band")) == 3
    assert root.find(f"{SVG}desc").text == "3 → 0.2"


def test_a_falling_curve_falls():
    root = parsed(charts.curve("loss", "Loss", constant([3.0, 2.0, 1.0]), 3))
    points = [tuple(map(float, point.split(","))) for point in marks(root, "polyline", "line")[0].get("points").split()]
    assert points == sorted(points)
    assert [y for _, y in points] == sorted(y for _, y in points)  # downwards is larger


@given(st.lists(st.tuples(values, values, values), max_size=12), st.integers(0, 3))
def test_curves_of_anything(rows, more):
    mean, low, high = ([row[i] for row in rows] for i in range(3))
    root = parsed(charts.curve("loss", "Loss", {"mean": mean, "low": low, "high": high}, len(rows) + more))
    assert root.find(f"{SVG}title").text


@given(st.floats(-1e100, 1e100), st.floats(-1e100, 1e100))
def test_ticks_are_few_and_rise(a, b):
    low, high = sorted((a, b))
    found = charts.ticks(low, high)
    assert 1 <= len(found) <= 6
    assert found == sorted(set(found))


@given(st.floats(-1e100, 1e100) | st.integers(-40, 40).map(lambda n: n / 4), st.floats(0, 1e100) | st.floats(0, 10))
@example(1.5, 0.0)
@example(1e7, 4.0)
@example(1e7 + 0.5, 3.0)
def test_labels_show_the_values_of_their_ticks(low, span):
    found = charts.ticks(low, low + span)
    labels = charts._tick_labels(found)
    step = min((b - a for a, b in itertools.pairwise(found)), default=1)
    for label, value in zip(labels, found, strict=True):
        assert abs(float(label.replace(",", "").replace("−", "-")) - value) <= step / 100
    assert len(set(labels)) == len(labels)


def test_a_constant_curve_has_round_ticks_around_it():
    root = parsed(charts.curve("loss", "Loss", {"mean": [1.5, 1.5], "low": [1.5, 1.5], "high": [1.5, 1.5]}, 2))
    labels = [one.text for one in marks(root, "text", "tick")]
    assert labels[:3] == ["1", "2", "3"]


@given(st.integers(2, 10**6))
def test_ticks_at_epochs_are_epochs(epochs):
    found = charts.ticks(1, epochs, whole_numbers=True)
    assert found
    assert all(value == int(value) and 1 <= value <= epochs for value in found)


@given(st.lists(st.integers(0, 10**6), min_size=4, max_size=4))
def test_shades_are_those_of_the_legend(counts):
    matrix = [counts[:2], counts[2:]]
    legend = dict(charts.shades("removed", matrix))
    for count in counts:
        span = [int(number.replace(",", "")) for number in legend[charts.level_of(count, max(counts))].split("–")]
        assert span[0] <= count <= span[-1]


POINTS = [charts.Point(0.02, 0.5, 4.0, 5.0), charts.Point(0.1, 5.0, 12.0, None)]


def places(mark):
    return [tuple(map(float, point.split(","))) for point in mark.get("points").split()]


def test_a_trade_off_shows_guesses_and_truth():
    root = parsed(charts.trade_off("lost", "True labels lost", POINTS, 0.02))
    ranges, (diamond,) = marks(root, "line", "range"), marks(root, "polygon", "counted")
    assert ranges[0].find(f"{SVG}title").text == "α = 0.02: a guessed 0 to 4 %"
    assert diamond.find(f"{SVG}title").text == "α = 0.02: true value 5.0 %"
    (across, above), *_ = places(diamond)
    assert across == pytest.approx(float(ranges[0].get("x1")), abs=0.1)
    assert above + 6 < float(ranges[0].get("y2"))  # more was lost than guessed
    (used,) = marks(root, "line", "used")
    assert used.get("x1") == used.get("x2") == ranges[0].get("x1")
    assert root.find(f"{SVG}desc").text == "Guessed: 0 to 4 % at α = 0.02, 5 to 12 % at α = 0.1."


def test_the_band_of_a_trade_off_goes_through_its_ranges():
    root = parsed(charts.trade_off("removed", "Wrong candidates removed", POINTS, None))
    (band,), ranges = marks(root, "polygon", "band"), marks(root, "line", "range")
    first, second, third, fourth = places(band)
    ends = [[float(one.get(name)) for name in ("x1", "y2", "x2", "y1")] for one in ranges]
    assert ends == [pytest.approx([*first, *fourth], abs=0.1), pytest.approx([*second, *third], abs=0.1)]
    assert first[1] < fourth[1]  # downwards is larger
    assert not marks(root, "line", "used")
    assert not marks(root, "line", "diagonal")


def test_a_level_beyond_those_shown_is_not_marked():
    assert not marks(parsed(charts.trade_off("lost", "Lost", POINTS, 0.3)), "line", "used")


shares = st.lists(st.floats(0, 100), min_size=2, max_size=2).map(sorted)
levels = st.dictionaries(
    st.floats(0, 1, exclude_min=True, exclude_max=True), st.tuples(shares, st.floats(0, 100) | st.none()), min_size=1
)


@given(st.sampled_from(["lost", "removed"]), levels, st.floats(0, 1))
def test_trade_offs_of_anything(name, found, used):
    points = [charts.Point(a, low, high, true) for a, ((low, high), true) in sorted(found.items())]
    root = parsed(charts.trade_off(name, "Share", points, used))
    (band,) = marks(root, "polygon", "band")
    assert len({x for x, _ in places(band)}) > 1 or points[-1].alpha - points[0].alpha < 1e-3
    height = float(root.get("height"))
    assert all(0 <= y <= height for mark in marks(root, "polygon", "counted") for _, y in places(mark))


def test_a_heat_map_names_its_cells():
    hints = ["a: 9", "a and b: 4", "b and a: 4", "<b>: 7"]
    root = parsed(charts.heat_map("together", "Both", ["a", "<b>"], [[9, 4], [4, 7]], hints))
    cells = marks(root, "rect", "cell")
    assert [cell.find(f"{SVG}title").text for cell in cells] == hints
    assert [cell.get("class") for cell in cells] == ["cell diagonal", "cell heat-5", "cell heat-5", "cell diagonal"]
    assert [text.text for text in marks(root, "text", "tick")] == ["a", "a", "<b>", "<b>"]


def test_a_heat_map_of_nothing():
    root = parsed(charts.heat_map("removed", "Gone", ["a", "b"], [[0, 0], [0, 0]], [""] * 4))
    assert {cell.get("class") for cell in marks(root, "rect", "cell")} == {"cell heat-0"}
    assert charts.shades("removed", [[0, 0], [0, 0]]) == [(0, "0")]


def test_reliability_shows_what_is_known():
    known = {"low": 0.5, "high": 1.0, "count": 4, "probability": 0.75, "covering": 1.0, "accuracy": 0.5}
    empty = {"low": 0.0, "high": 0.5, "count": 0, "probability": None, "covering": None, "accuracy": None}
    root = parsed(charts.reliability([empty, known]))
    (covering,), (accuracy,) = marks(root, "circle", "covering"), marks(root, "circle", "accuracy")
    assert covering.get("cx") == accuracy.get("cx")
    assert float(covering.get("cy")) < float(accuracy.get("cy"))
    assert heights(root, "before") == [0, 70]
    assert not marks(parsed(charts.reliability([empty, {**known, "accuracy": None}])), "circle", "accuracy")
