"""Draw charts as SVG: pure functions from facts to text.

The page's style sheet sets colours and fonts: elements have classes, never colours. All texts are escaped here.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from html import escape
from itertools import pairwise

from candidly.messages import cut, width
from candidly.report.facts import Bin, Curve
from candidly.report.texts import percent, rounded, whole

LEVELS = 5  # shades of a heat map
_MOST_GROUPS = 24  # groups of bars
_SMALLEST, _LARGEST = 1e-100, 1e100  # smallest difference and largest value that a scale can show
_LETTER = 6.7  # pixels that a letter of a label takes in the widest common font


@dataclass(frozen=True)
class Scale:
    """A linear map from values to pixels."""

    low: float
    high: float
    start: float
    end: float

    def __call__(self, value: float) -> float:
        """Return the pixel of a value."""
        return self.start + (self.end - self.start) * (value - self.low) / (self.high - self.low)


@dataclass(frozen=True)
class Point:
    """A guessed range at a level, in percent, and the true value where it is known."""

    alpha: float
    low: float
    high: float
    true: float | None


def bars(before: Sequence[int], after: Sequence[int]) -> str:
    """Draw the number of rows with 1, 2, … candidates, before and after cleaning."""
    groups = group_sizes(before, after)
    step = min(56.0, max(28.0, 640 / len(groups)))
    left, top, height = 62, 28, 210
    right = left + step * len(groups)
    y = Scale(0, max(1, *(max(counts) for _, *counts in groups)), top + height, top)
    marks = [_text(left - 8, top - 14, "rows", "axis", anchor="end")]
    marks += _grid(y, ticks(0, y.high, whole_numbers=True), left, right)
    for i, (label, *counts) in enumerate(groups):
        middle = left + step * (i + 0.5)
        for number, kind, x in zip(counts, ("before", "after"), (middle - 0.38 * step, middle), strict=True):
            hint = _title(f"{label} candidate{'s' * (label != '1')}, {kind}: {whole(number)} rows")
            size = {"x": x, "y": y(number), "width": 0.38 * step, "height": y.start - y(number)}
            marks.append(_element("rect", hint, class_=kind, **size))
        marks.append(_text(middle, y.start + 16, label, "tick", anchor="middle"))
    marks.append(_text((left + right) / 2, y.start + 36, "candidates in a row", "axis", anchor="middle"))
    words = f"One candidate: {whole(before[0])} rows before, {whole(after[0])} after. Largest size: {groups[-1][0]}."
    return _chart("sizes", right + 14, y.start + 46, "Rows by number of candidates, before and after", words, marks)


def group_sizes(before: Sequence[int], after: Sequence[int]) -> list[tuple[str, int, int]]:
    """Return a label and both counts for each size up to the largest; many sizes are grouped into ranges.

    Examples
    --------
    >>> group_sizes([1, 2, 0], [3, 0, 0])
    [('1', 1, 3), ('2', 2, 0)]
    >>> group_sizes([0] * 99 + [7], [7] + [0] * 99)[:2]
    [('1', 0, 7), ('2–6', 0, 0)]
    """
    last = max((size for size, counts in enumerate(zip(before, after, strict=True), 1) if any(counts)), default=1)
    step = math.ceil((last - 1) / (_MOST_GROUPS - 1)) or 1
    ends = [0, *range(1, last, step), last]
    return [
        (str(end) if end == start + 1 else f"{start + 1}–{end}", sum(before[start:end]), sum(after[start:end]))
        for start, end in pairwise(ends)
        if end > start
    ]


def curve(name: str, label: str, values: Curve, epochs: int) -> str:
    """Draw a quantity by epoch: its mean as a line, in a band from its smallest to its largest value."""
    mean, low, high = (list(map(_drawable, part)) for part in (values["mean"], values["low"], values["high"]))
    known = [value for value in (*mean, *low, *high) if value is not None] or [0.0]
    steps = ticks(min(known), max(known))
    x, y = Scale(1, max(2, epochs), 58, 326), Scale(min(*known, *steps), max(*known, *steps), 150, 12)
    marks = _grid(y, steps, x.start, x.end)
    for epoch in sorted({1, *ticks(1, x.high, whole_numbers=True)} & {*range(1, epochs + 1)}):
        marks.append(_text(x(epoch), y.start + 16, whole(int(epoch)), "tick", anchor="middle"))
    marks.append(_text((x.start + x.end) / 2, y.start + 33, "epoch", "axis", anchor="middle"))
    for run in _runs(low, high):
        edge = [(x(e), y(b)) for e, _, b in run] + [(x(e), y(a)) for e, a, _ in reversed(run)]
        marks.append(_element("polygon", class_="band", points=_points(edge)))
    for run in _runs(mean):
        if len(run) == 1:
            marks.append(_element("circle", class_="dot", cx=x(run[0][0]), cy=y(run[0][1]), r=2.5))
        else:
            marks.append(_element("polyline", class_="line", points=_points((x(e), y(v)) for e, v in run)))
    return _chart(f"curve-{name}", 340, y.start + 42, f"{label} by epoch", describe_curve(values), marks)


def describe_curve(values: Curve) -> str:
    """Return the first and last value of a curve, as text.

    Examples
    --------
    >>> describe_curve({"mean": [2.5, 1.25, 0.5], "low": [2, 1, 0], "high": [3, 2, 1]})
    '2.5 → 0.5'
    """
    known = [value for value in map(_drawable, values["mean"]) if value is not None]
    return f"{rounded(known[0])} → {rounded(known[-1])}" if known else "not recorded"


def trade_off(name: str, label: str, points: Sequence[Point], used: float | None) -> str:
    """Draw a fraction by level: a band of guessed ranges, true values, and the level that was used.

    For the name "lost", a dashed line shows what the level allows.
    """
    last, top = max(points[-1].alpha, 0.001), max(max(one.high, one.true or 0.0) for one in points)
    steps = ticks(0, max(top, 100 * last)) if name == "lost" else [0, 20, 40, 60, 80, 100]
    x, y = Scale(0, 1.04 * last, 50, 426), Scale(0, max(top, steps[-1]), 226, 32)
    marks = [_text(x.start - 8, y.end - 14, "%", "axis", anchor="end"), *_grid(y, steps, x.start, x.end)]
    levels = ticks(0, last)
    for level, level_label in zip(levels, _tick_labels(levels), strict=True):
        marks.append(_text(x(level), y.start + 16, level_label, "tick", anchor="middle"))
    marks.append(_text((x.start + x.end) / 2, y.start + 34, "level α", "axis", anchor="middle"))
    if name == "lost":
        marks.append(_element("line", class_="diagonal", x1=x(0), y1=y(0), x2=x(last), y2=y(100 * last)))
    if used is not None and 0 < used <= last:
        marks.append(_element("line", class_="used", x1=x(used), y1=y.start, x2=x(used), y2=y.end))
        marks.append(_text(x(used), y.end - 6, f"α = {rounded(used)}", "axis", anchor="middle"))
    marks += _guesses(name, points, x, y)
    ends = [f"{_range(one)} at α = {rounded(one.alpha)}" for one in (points[0], points[-1])]
    words = f"Guessed: {', '.join(dict.fromkeys(ends))}."
    return _chart(f"cost-{name}", 440, y.start + 44, f"{label}, by level", words, marks)


def _range(point: Point) -> str:
    return f"{point.low:.0f} to {point.high:.0f} %"


def _guesses(name: str, points: Sequence[Point], x: Scale, y: Scale) -> list[str]:
    wide = 5 if len(points) == 1 else 0  # the band around a single level
    highs = [(x(one.alpha) + side, y(one.high)) for one in points for side in sorted({-wide, wide})]
    lows = [(x(one.alpha) + side, y(one.low)) for one in points for side in sorted({-wide, wide})]
    marks = [_element("polygon", class_=f"band {name}", points=_points([*highs, *reversed(lows)]))]
    for one in points:
        across, hint = x(one.alpha), _title(f"α = {rounded(one.alpha)}: a guessed {_range(one)}")
        ends = {"x1": across, "x2": across, "y1": y(one.low), "y2": y(one.high)}
        marks.append(_element("line", hint, class_=f"range {name}", **ends))
    for one in points:
        if one.true is not None:
            across, down = x(one.alpha), y(one.true)
            corners = _points([(across, down - 6), (across + 6, down), (across, down + 6), (across - 6, down)])
            hint = _title(f"α = {rounded(one.alpha)}: true value {one.true:.1f} %")
            marks.append(_element("polygon", hint, class_="counted", points=corners))
    return marks


def heat_map(name: str, label: str, names: Sequence[str], counts: Sequence[Sequence[int]], hints: Sequence[str]) -> str:
    """Draw a matrix of counts with classes on both axes; `hints` has the tooltip of each cell, row by row.

    For the name "together", the diagonal counts something else and has no shade.
    """
    number, most = len(names), _largest(name, counts)
    cell = 34 if number <= 10 else 27 if number <= 16 else 18
    shorts = [cut(text, 20) for text in names]
    space = _LETTER * max(map(width, shorts))
    left, top = space + 12, 0.71 * space + 16  # labels of columns are rotated by 45 degrees
    marks = []
    for i, (text, short) in enumerate(zip(names, shorts, strict=True)):
        middle, full = (i + 0.5) * cell, _title(cut(text, 1000))
        marks.append(_text(left - 6, top + middle + 4, short, "tick", full, anchor="end"))
        x, y = left + middle + 2, top - 6
        marks.append(_text(x, y, short, "tick", full, transform=f"rotate(-45 {x:.1f} {y:.1f})"))
    for (i, j), hint in zip(((i, j) for i in range(number) for j in range(number)), hints, strict=True):
        value, x, y = counts[i][j], left + j * cell, top + i * cell
        level = "diagonal" if name == "together" and i == j else f"heat-{level_of(value, most)}"
        size = {"x": x + 0.5, "y": y + 0.5, "width": cell - 1, "height": cell - 1}
        marks.append(_element("rect", _title(hint), class_=f"cell {level}", **size))
        if value and cell > 20:
            marks.append(_text(x + cell / 2, y + cell / 2 + 3.5, _short(value), f"count {level}", anchor="middle"))
    total = cell * number
    words = f"{number} classes; the largest count is {whole(most)}."
    return _chart(f"heat-{name}", left + total + 0.71 * space, top + total + 6, label, words, marks)


def shades(name: str, counts: Sequence[Sequence[int]]) -> list[tuple[int, str]]:
    """Return the shades of a heat map, with the range of counts of each.

    Examples
    --------
    >>> shades("removed", [[0, 100], [3, 30]])
    [(0, '0'), (1, '1–4'), (2, '5–16'), (3, '17–36'), (4, '37–64'), (5, '65–100')]
    """
    most = _largest(name, counts)
    ends = [most * level**2 // LEVELS**2 for level in range(LEVELS + 1)]
    ranges = [(level, low + 1, high) for level, (low, high) in enumerate(pairwise(ends), 1) if high > low]
    return [(0, "0"), *((level, _span(low, high)) for level, low, high in ranges)]


def level_of(count: int, most: int) -> int:
    """Return the shade of a count: small counts differ more than large ones, and only 0 has no shade."""
    return next(level for level in range(LEVELS + 1) if count * LEVELS**2 <= most * level**2)


def reliability(bins: Sequence[Bin]) -> str:
    """Draw the fraction of predictions that are candidates, or true, by probability, above the counts of the bins."""
    x, y = Scale(0, 1, 50, 336), Scale(0, 1, 256, 26)
    most = max((one["count"] for one in bins), default=0) or 1
    depth = Scale(0, most, 384, 314)
    fifths = [i / 5 for i in range(6)]
    marks = [_text(x.start - 8, y.end - 14, "fraction", "axis", anchor="end")]
    marks += _grid(y, fifths, x.start, x.end)
    marks.append(_element("line", class_="diagonal", x1=x(0), y1=y(0), x2=x(1), y2=y(1)))
    for kind, words in (("covering", "are a candidate"), ("accuracy", "are true")):
        marks += _reliability_line(bins, kind, words, x, y)
    marks.append(_text(x.start - 8, depth.end - 14, "rows", "axis", anchor="end"))
    marks += _grid(depth, [0, most], x.start, x.end)
    for one in bins:
        hint = _title(f"probability {rounded(one['low'])} to {rounded(one['high'])}: {whole(one['count'])} rows")
        size = {"x": x(one["low"]) + 1, "width": max(1.0, x(one["high"]) - x(one["low"]) - 2)}
        size |= {"y": depth(one["count"]), "height": depth.start - depth(one["count"])}
        marks.append(_element("rect", hint, class_="before", **size))
    for share in fifths:
        marks.append(_text(x(share), depth.start + 16, rounded(share), "tick", anchor="middle"))
    marks.append(_text((x.start + x.end) / 2, depth.start + 34, "probability", "axis", anchor="middle"))
    words = f"{len(bins)} bins with {whole(sum(one['count'] for one in bins))} rows."
    return _chart("reliability", 350, depth.start + 44, "Reliability by probability", words, marks)


def _reliability_line(bins: Sequence[Bin], kind: str, words: str, x: Scale, y: Scale) -> list[str]:
    points, dots = [], []
    for one in bins:
        share = one["covering"] if kind == "covering" else one["accuracy"]
        if share is None:
            continue
        middle = (one["low"] + one["high"]) / 2 if one["probability"] is None else one["probability"]
        place, rows = (x(middle), y(share)), f"{whole(one['count'])} row{'s' * (one['count'] != 1)}"
        hint = _title(f"probability {rounded(middle)}: {percent(share)} of {rows} {words}")
        points.append(place)
        dots.append(_element("circle", hint, class_=f"dot {kind}", cx=place[0], cy=place[1], r=4))
    return [_element("polyline", class_=f"line {kind}", points=_points(points)), *dots] if points else []


def ticks(low: float, high: float, *, whole_numbers: bool = False) -> list[float]:
    """Return about four round values between two bounds; if these are equal, round values around them.

    Examples
    --------
    >>> ticks(0, 43), ticks(1, 3, whole_numbers=True), ticks(1.7, 1.7)
    ([0, 10, 20, 30, 40], [1, 2, 3], [1, 2, 3])
    """
    largest = max(abs(low), abs(high))
    if high - low <= max(1e-9 * largest, _SMALLEST):
        spread = 10 ** math.floor(math.log10(largest)) if largest > _SMALLEST else 1
        return [spread * (round(low / spread) + n) for n in (-1, 0, 1)]
    power = 10 ** math.floor(math.log10((high - low) / 4))
    step: float = next(power * n for n in (1, 2, 5, 10) if (high - low) / (power * n) <= 4.5)
    step = max(1, step) if whole_numbers else step
    return [step * n for n in range(math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9) + 1)]


def _tick_labels(values: Sequence[float]) -> list[str]:
    """Format values with as few digits as show each of them to a hundredth of the step between them.

    Examples
    --------
    >>> _tick_labels([0.5, 1.5, 2.5]), _tick_labels([0, 20000]), _tick_labels([0, 2e-9])
    (['0.5', '1.5', '2.5'], ['0', '20,000'], ['0', '2e−09'])
    """
    step = min((b - a for a, b in pairwise(values)), default=1)
    usual = step >= 1e-5 and max(map(abs, values)) < 1e7
    formats = [f",.{decimals}f" for decimals in range(8)] if usual else []
    for form in (*formats, *(f".{digits}g" for digits in range(1, 17)), ".17g"):
        labels = [f"{value:{form}}" for value in values]
        if all(
            abs(float(label.replace(",", "")) - value) <= step / 100
            for label, value in zip(labels, values, strict=True)
        ):
            break
    return [label.replace("-", "−") for label in labels]


def _grid(y: Scale, values: Sequence[float], left: float, right: float) -> list[str]:
    """Draw horizontal lines at these values, with labels."""
    marks = []
    for value, label in zip(values, _tick_labels(values), strict=True):
        marks.append(_element("line", class_="grid", x1=left, y1=y(value), x2=right, y2=y(value)))
        marks.append(_text(left - 8, y(value) + 4, label, "tick", anchor="end"))
    return marks


def _drawable(value: float | None) -> float | None:
    """Return None for a value that would overflow a scale, such as a diverged loss."""
    return None if value is None or not abs(value) <= _LARGEST else value


def _runs(*columns: Sequence[float | None]) -> list[list[tuple[float, ...]]]:
    """Return runs of epochs in which no column has a missing value, with the values of all columns."""
    runs: list[list[tuple[float, ...]]] = [[]]
    for epoch, values in enumerate(zip(*columns, strict=True), 1):
        known = [value for value in values if value is not None]
        if len(known) == len(values):
            runs[-1].append((epoch, *known))
        elif runs[-1]:
            runs.append([])
    return [run for run in runs if run]


def _largest(name: str, counts: Sequence[Sequence[int]]) -> int:
    """Return the largest count with a shade."""
    return max(
        (value for i, row in enumerate(counts) for j, value in enumerate(row) if name != "together" or i != j),
        default=0,
    )


def _span(low: int, high: int) -> str:
    return whole(low) if low == high else f"{whole(low)}–{whole(high)}"


def _short(count: int) -> str:
    """Format a count in at most four characters.

    Examples
    --------
    >>> [_short(count) for count in (999, 1049, 25_400, 3_200_000)]
    ['999', '1.0k', '25k', '3.2m']
    """
    for unit, letter in ((10**9, "b"), (10**6, "m"), (10**3, "k")):
        if count >= unit:
            return f"{count / unit:.{int(count < 10 * unit)}f}{letter}"
    return str(count)


def _chart(name: str, wide: float, high: float, title: str, words: str, marks: Iterable[str]) -> str:
    size = {"width": math.ceil(wide), "height": math.ceil(high)}
    titles = f'<title id="{name}-title">{escape(title)}</title><desc id="{name}-desc">{escape(words)}</desc>'
    label = {"role": "img", "aria_labelledby": f"{name}-title {name}-desc"}
    box = {"viewBox": f"0 0 {size['width']} {size['height']}"}
    return _element("svg", titles, *marks, class_="chart", id=name, **size, **box, **label)


def _element(tag: str, /, *children: str, **attributes: str | float) -> str:
    """Return an SVG element; children are SVG, attributes are escaped."""
    written = "".join(f' {key.rstrip("_").replace("_", "-")}="{_value(value)}"' for key, value in attributes.items())
    return f"<{tag}{written}>{''.join(children)}</{tag}>"


def _value(value: str | float) -> str:
    return escape(value) if isinstance(value, str) else f"{value:.1f}".removesuffix(".0")


def _title(words: str) -> str:
    return f"<title>{escape(words)}</title>"


def _text(x: float, y: float, words: str, kind: str, hint: str = "", anchor: str = "start", **more: str) -> str:
    return _element("text", escape(words), hint, class_=kind, x=x, y=y, text_anchor=anchor, **more)


def _points(places: Iterable[tuple[float, float]]) -> str:
    return " ".join(f"{x:.1f},{y:.1f}" for x, y in places)
