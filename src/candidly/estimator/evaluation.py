"""How good a fitted classifier is where true labels are known: accuracy, prediction sets, what abstaining gains.

``evaluate`` measures and ``draw`` plots; ``candidly evaluate`` does both for a table.
"""

import dataclasses
import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from candidly import metrics
from candidly.conformal.calibration import KINDS, SCORES, Candidate, Rule, read_levels
from candidly.estimator import targets
from candidly.estimator.classifier import PartialLabelClassifier
from candidly.store.figures import write_figure

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["LEVELS", "Evaluation", "SetCurve", "draw", "evaluate"]

LEVELS = (0.01, 0.05, 0.1, 0.2, 0.3, 0.5)
_SHARES = (0.5, 0.8, 1.0)  # of the rows, of which the summary gives the errors
_MOST_POINTS = 200  # of a risk-coverage curve
_STYLES = {"split": "--", "cv+": "-", "averaged": ":"}
_COLOURS = {"lac": "tab:blue", "aps": "tab:orange"}


@dataclass(frozen=True)
class SetCurve:
    """Prediction sets at several levels: the share that holds the true label, and their mean size."""

    kind: str
    score: str
    coverage: tuple[float, ...]
    size: tuple[float, ...]


@dataclass(frozen=True)
class Evaluation:
    """What `evaluate` found.

    Attributes
    ----------
    rows, classes : int
        How many rows have a true label, and how many classes the classifier knows.
    unknown : int
        Rows whose true label is none of these classes: they are never predicted rightly, nor covered.
    accuracy : float
        Share of rows whose most probable class is the true one.
    candidate, smooth : str, bool
        As in `candidly.PartialLabelClassifier.predict_p`.
    alphas : tuple of float
        Levels of the sets.
    sets : tuple of SetCurve
        Prediction sets of each kind and score at these levels.
    coverage, risk : tuple of float
        The risk-coverage curve: the share of rows that is accepted, the most confident first, and the share of errors
        among them; at 200 points or fewer.
    area : float
        The area under it (AURC).
    estimated_coverage, estimated_risk : tuple of float
        The same curve as `fit` estimated it, from candidates alone.
    """

    rows: int
    classes: int
    unknown: int
    accuracy: float
    candidate: str
    smooth: bool
    alphas: tuple[float, ...]
    sets: tuple[SetCurve, ...]
    coverage: tuple[float, ...]
    risk: tuple[float, ...]
    area: float
    estimated_coverage: tuple[float, ...]
    estimated_risk: tuple[float, ...]

    def to_json(self) -> dict[str, Any]:
        """Return everything in JSON types."""
        return dataclasses.asdict(self)

    def __str__(self) -> str:
        unknown = f", {self.unknown} with a label that is no class of the model" if self.unknown else ""
        shares = [next(i for i, share in enumerate(self.coverage) if share >= least) for least in _SHARES]
        errors = ", ".join(f"{self.risk[i]:.1%} of the surest {self.coverage[i]:.0%}" for i in shares)
        lines = [
            f"{self.rows} rows{unknown}, {self.classes} classes, accuracy {self.accuracy:.1%}",
            f"errors: {errors} (area under the curve {self.area:.4f})",
            f"sets that hold the true label, and classes per set, by alpha (candidate {self.candidate}):",
            " ".join(["", *[f"{'':12}", *(f"{alpha:>13g}" for alpha in self.alphas)]]),
        ]
        for one in self.sets:
            cells = [f"{share:>7.1%} {size:5.2f}" for share, size in zip(one.coverage, one.size, strict=True)]
            lines.append(" ".join(["", f"{one.kind + ' ' + one.score:12}", *cells]))
        return "\n".join(lines)


def evaluate(
    estimator: PartialLabelClassifier,
    X: Any,
    y: Any,
    *,
    alphas: Sequence[float] = LEVELS,
    candidate: Candidate = "best",
    smooth: bool = False,
) -> Evaluation:
    """Compare a fitted classifier's predictions, sets and confidence with true labels.

    Parameters
    ----------
    estimator : PartialLabelClassifier
        Fitted, with held-out rows.
    X : array or table
        Rows that it was not trained on.
    y : sequence
        The true label of each row, by name; None or NaN where it is not known, and the row then counts for nothing.
    alphas : sequence of float
        Levels of the prediction sets.
    candidate, smooth
        As in `PartialLabelClassifier.predict_p`.

    Examples
    --------
    >>> X = [[0.0], [0.1], [0.2], [0.8], [0.9], [1.0]]
    >>> y = [["cat"], ["cat", "dog"], ["cat"], ["dog"], ["cat", "dog"], ["dog"]]
    >>> classifier = PartialLabelClassifier(folds=2, random_state=0).fit(X, y)
    >>> found = evaluate(classifier, [[0.05], [0.95]], ["cat", "dog"], alphas=[0.5])
    >>> found.accuracy, found.sets[0].kind, found.sets[0].score
    (1.0, 'split', 'lac')
    """
    levels = read_levels(alphas)
    rules = [Rule(kind, score, candidate, smooth) for kind in KINDS for score in SCORES]
    p_values = estimator._p_values(X, rules)
    labels, known = targets.number(y, estimator.classes_.tolist(), len(p_values[0]))
    if not known.any():
        raise ValueError(f"none of {len(known)} rows has a true label; give some")
    true = torch.from_numpy(labels[known])
    top, best = torch.from_numpy(estimator.predict_proba(X)[known]).max(-1)
    wrong = (best != true).double()
    _, coverage, risk = metrics.risk_coverage(top, wrong)
    points = torch.linspace(0, len(true) - 1, min(len(true), _MOST_POINTS)).round().long()
    grid = torch.tensor(levels, dtype=torch.float64)
    curves = [metrics.coverage_curve(torch.from_numpy(one[known]), true, grid) for one in p_values]
    return Evaluation(
        rows=len(true),
        classes=len(estimator.classes_),
        unknown=int((true < 0).sum()),
        accuracy=round(1 - float(wrong.mean()), 6),
        candidate=candidate,
        smooth=bool(smooth),
        alphas=levels,
        sets=tuple(
            SetCurve(rule.kind, rule.score, _plain(share), _plain(size))
            for rule, (share, size) in zip(rules, curves, strict=True)
        ),
        coverage=_plain(coverage[points]),
        risk=_plain(risk[points]),
        area=round(float(metrics.aurc(top, wrong)), 6),
        estimated_coverage=_plain(estimator.calibration_.risk[1]),
        estimated_risk=_plain(estimator.calibration_.risk[2]),
    )


def draw(evaluation: Evaluation, path: str | os.PathLike[str]) -> None:
    """Plot coverage against size of the prediction sets, and errors against the share of rows that is accepted.

    Parameters
    ----------
    evaluation : Evaluation
    path : path
        A file ending in .svg, .pdf or .png; replaced if it exists. The same evaluation gives the same bytes, with the
        same version of matplotlib.

    Raises
    ------
    ValueError
        If the ending is another one.
    ModuleNotFoundError
        If matplotlib is not installed.

    Examples
    --------
    >>> import tempfile
    >>> from pathlib import Path
    >>> sets = (SetCurve("split", "lac", (0.95, 0.8), (1.5, 1.0)),)
    >>> found = Evaluation(9, 3, 0, 0.9, "best", False, (0.1, 0.2), sets, (0.5, 1), (0, 0.1), 0.05, (0.5, 1), (0, 0.1))
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     draw(found, Path(folder, "found.svg"))
    ...     Path(folder, "found.svg").read_text()[:5]
    '<?xml'
    """
    write_figure(path, lambda: _figure(evaluation))


def _figure(evaluation: Evaluation) -> "Figure":
    from matplotlib.figure import Figure

    figure = Figure((10, 4.2), dpi=200, layout="constrained")
    left, right = figure.subplots(1, 2)
    for one in evaluation.sets:
        style, colour, label = _STYLES[one.kind], _COLOURS[one.score], f"{one.kind} {one.score}"
        left.plot(one.size, one.coverage, style, color=colour, marker=".", label=label)
    _finish(left, "Prediction sets", "classes per set", "share of sets that hold the true label")
    right.plot(evaluation.coverage, evaluation.risk, color="black", label="by true labels")
    right.plot(evaluation.estimated_coverage, evaluation.estimated_risk, "--", color="0.5", label="as fit estimated it")
    _finish(right, "Abstaining", "share of rows that is accepted", "share of errors among them")
    right.set(xlim=(0, 1), ylim=(0, None))
    return figure


def _finish(axes: "Axes", title: str, x: str, y: str) -> None:
    axes.set(title=title, xlabel=x, ylabel=y)
    axes.grid(color="0.9")
    axes.legend(frameon=False)


def _plain(values: Tensor) -> tuple[float, ...]:
    return tuple(round(value, 6) for value in values.tolist())
