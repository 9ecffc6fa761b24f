"""Critical-difference diagrams: average ranks on an axis, with bars over the methods that do not differ significantly.

The diagram of J. Demšar, Statistical Comparisons of Classifiers over Multiple Data Sets, JMLR 7, 2006.
"""

import os
from collections.abc import Mapping
from typing import TYPE_CHECKING

from candidly.bench.scores import Scores
from candidly.bench.statistics import Ranks, ranks
from candidly.checks import arguments
from candidly.store.figures import check_format, write_figure

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["draw"]

# All positions are in inches; y grows downwards.
TITLE, DISTANCE, AXIS, BARS = 0.28, 0.68, 1.1, 1.28
AXIS_WIDTH, LINE, BAR, ELBOW, MARGIN = 6.0, 0.26, 0.12, 0.5, 0.15
FONT, SMALL, GREY = 10, 8, "0.4"
LONGEST = 40


def draw(scores: Scores, path: str | os.PathLike[str], names: Mapping[str, str] | None = None) -> None:
    """Draw the critical-difference diagram of the methods into a file.

    The same scores give the same bytes, with the same version of matplotlib.

    Parameters
    ----------
    scores : Scores
    path : path
        A file name that ends in .svg, .pdf or .png; the file is replaced if it exists.
    names : mapping of str to str, optional
        What to show instead of the names of some methods.

    Raises
    ------
    ValueError
        If the file name ends differently, there are fewer than two methods, or no dataset has cells of all methods.
    ModuleNotFoundError
        If matplotlib is not installed.

    Examples
    --------
    >>> import tempfile
    >>> from pathlib import Path
    >>> cells = {(d, m): {0: a} for d, row in {"lost": (5, 7, 6), "soccer": (4, 6, 5)}.items()
    ...          for m, a in zip(("proden", "cc", "pop"), (a / 10 for a in row))}
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     draw(Scores(cells), Path(folder, "ranks.svg"))
    ...     Path(folder, "ranks.svg").read_text()[:5]
    '<?xml'
    """
    arguments.instance("scores", scores, Scores, "a candidly.bench.Scores")
    path = arguments.path("path", path)
    check_format(path)
    found, labels = ranks(scores), scores.labels(names)
    if not found.average:
        raise ValueError(f"no diagram: {found.reason}; leave out the methods or datasets with missing cells")
    if found.distance is None:
        raise ValueError(f"no diagram of {len(found.average)} method; give scores of at least two")
    distance = found.distance
    write_figure(path, lambda: _figure(found, distance, labels))


def _figure(found: Ranks, distance: float, labels: Mapping[str, str]) -> "Figure":
    from matplotlib.figure import Figure

    order = sorted(found.average, key=lambda method: found.average[method])
    half, number = (len(order) + 1) // 2, len(order)
    levels = _stack(found)
    start, end = (
        MARGIN + ELBOW + max(_measure(labels[name]) for name in side) for side in (order[:half], order[half:])
    )
    top = BARS + BAR * len(set(levels.values()))
    width, height = start + AXIS_WIDTH + end, top + LINE * half + MARGIN
    figure = Figure((width, height), dpi=200)
    axes = figure.add_axes((0, 0, 1, 1), xlim=(0, width), ylim=(height, 0))
    axes.set_axis_off()

    places = {rank: start + AXIS_WIDTH * (rank - 1) / (number - 1) for rank in range(1, number + 1)}
    at = {method: start + AXIS_WIDTH * (rank - 1) / (number - 1) for method, rank in found.average.items()}
    axes.text(start + AXIS_WIDTH / 2, TITLE, _title(found), fontsize=FONT + 1, ha="center", va="center")
    _draw_axis(axes, places)
    _draw_distance(axes, distance, places)
    for group, level in levels.items():
        ends, y = [at[group[0]] - 0.02, at[group[-1]] + 0.02], BARS + BAR * level
        axes.plot(ends, [y, y], color="black", linewidth=4, solid_capstyle="butt", zorder=3)
    for i, method in enumerate(order):  # inner methods are drawn lower, so that no two lines cross
        y = top + LINE * (min(i, number - 1 - i) + 0.5)
        end = start - ELBOW if i < half else start + AXIS_WIDTH + ELBOW
        _draw_method(axes, labels[method], found.average[method], at[method], y, end)
    return figure


def _draw_axis(axes: "Axes", places: dict[int, float]) -> None:
    """Draw the axis of ranks, with the best on the left."""
    last = len(places)
    axes.plot([places[1], places[last]], [AXIS, AXIS], color="black", linewidth=1.2, solid_capstyle="projecting")
    step = 1 if last <= 15 else 2 if last <= 30 else 5
    for rank, x in places.items():
        named = (rank - 1) % step == 0
        axes.plot([x, x], [AXIS - (0.08 if named else 0.05), AXIS], color="black", linewidth=1)
        if named:
            axes.text(x, AXIS - 0.11, str(rank), fontsize=FONT, ha="center", va="bottom")


def _draw_distance(axes: "Axes", distance: float, places: dict[int, float]) -> None:
    """Draw the critical distance above the axis, with an arrow if it is longer than the axis."""
    left, right = places[1], places[1] + distance * (places[2] - places[1])
    beyond = right > places[len(places)]
    right = min(right, places[len(places)])
    text = f"critical distance {distance:.2f}" + ", longer than the axis" * beyond
    axes.plot([left, right], [DISTANCE, DISTANCE], color="black", linewidth=1.2)
    axes.plot([left, left], [DISTANCE - 0.05, DISTANCE + 0.05], color="black", linewidth=1.2)
    if beyond:
        axes.plot([right], [DISTANCE], color="black", marker=">", markersize=5)
    else:
        axes.plot([right, right], [DISTANCE - 0.05, DISTANCE + 0.05], color="black", linewidth=1.2)
    axes.text(left, DISTANCE - 0.07, text, fontsize=SMALL, ha="left", va="bottom")


def _draw_method(axes: "Axes", method: str, rank: float, x: float, y: float, end: float) -> None:
    """Draw a line with a bend from the axis to the name of the method."""
    name_side, rank_side, inwards = ("right", "left", 1) if end < x else ("left", "right", -1)
    axes.plot([x, x, end], [AXIS, y, y], color="black", linewidth=0.8, solid_joinstyle="miter")
    axes.text(end - 0.06 * inwards, y, _shorten(method), fontsize=FONT, ha=name_side, va="center")
    axes.text(end + 0.02 * inwards, y - 0.02, f"{rank:.2f}", fontsize=SMALL, ha=rank_side, va="bottom", color=GREY)


def _stack(found: Ranks) -> dict[tuple[str, ...], int]:
    """Return for each group the highest level on which its bar touches no other bar."""
    levels: dict[tuple[str, ...], int] = {}
    ends: list[float] = []
    for group in found.groups:
        start, end = found.average[group[0]], found.average[group[-1]]
        level = next((k for k, last in enumerate(ends) if start - last > 0.3), len(ends))
        ends[level : level + 1] = [end]
        levels[group] = level
    return levels


def _title(found: Ranks) -> str:
    datasets = f"{len(found.datasets)} dataset{'s' * (len(found.datasets) != 1)}"
    title = f"Average ranks of {len(found.average)} methods over {datasets}"
    if found.p is None:
        return f"{title}, too few for Friedman's test"
    return f"{title}, Friedman's test p " + ("< 0.001" if found.p < 0.001 else f"= {found.p:.3f}")


def _shorten(name: str) -> str:
    return name if len(name) <= LONGEST else f"{name[: LONGEST - 1]}…"


def _measure(name: str) -> float:
    """Return the width of a name in inches."""
    from matplotlib.font_manager import FontProperties
    from matplotlib.textpath import text_to_path

    width, _, _ = text_to_path.get_text_width_height_descent(_shorten(name), FontProperties(size=FONT), False)
    return float(width) / 72 + 0.06
