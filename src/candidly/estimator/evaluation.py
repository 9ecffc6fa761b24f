"""Compare a fitted classifier with true labels: accuracy, prediction sets, and errors by probability.

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
from candidly.checks import arguments
from candidly.conformal.calibration import KINDS, SCORES, Candidate, Rule, read_levels
from candidly.engine.device import usual_settings
from candidly.estimator import targets
from candidly.estimator.classifier import PartialLabelClassifier
from candidly.store.figures import write_figure

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["LEVELS", "Evaluation", "SetCurve", "draw", "evaluate"]

LEVELS = (0.01, 0.05, 0.1, 0.2, 0.3, 0.5)
_SHARES = (0.5, 0.8, 1.0)  # fractions of the rows for which the summary prints the error rate
_MOST_POINTS = 200  # of a risk-coverage curve
_STYLES = {"split": "--", "cv+": "-", "averaged": ":"}
_COLOURS = {"lac": "tab:blue", "aps": "tab:orange"}


@dataclass(frozen=True)
class SetCurve:
    """Prediction sets at several levels: the fraction that contains the true label, and the mean size."""

    kind: str
    score: str
    coverage: tuple[float, ...]
    size: tuple[float, ...]


@dataclass(frozen=True)
class Evaluation:
    """The result of `evaluate`.

    Attributes
    ----------
    rows, classes : int
        Number of rows with a true label, and number of classes of the classifier.
    unknown : int
        Rows whose true label is not one of these classes: they always count as errors and are never covered.
    accuracy : float
        Fraction of rows whose most probable class is the true one.
    candidate, smooth : str, bool
        As in `candidly.PartialLabelClassifier.predict_p`.
    alphas : tuple of float
        Levels of the sets.
    sets : tuple of SetCurve
        Prediction sets of each kind and score at these levels.
    coverage, risk : tuple of float
        The risk-coverage curve at up to 200 points: the fraction of rows that is accepted, the most probable
        predictions first, and their error rate.
    area : float
        The area under the risk-coverage curve (AURC).
    estimated_coverage, estimated_risk : tuple of float
        The same curve as estimated by `fit`, from candidates alone.
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
        unknown = f", {self.unknown} with a label that is not a class of the model" if self.unknown else ""
        shares = [next(i for i, share in enumerate(self.coverage) if share >= least) for least in _SHARES]
        errors = ", ".join(f"{self.risk[i]:.1%} of the most probable {self.coverage[i]:.0%}" for i in shares)
        lines = [
            f"{self.rows} rows{unknown}, {self.classes} classes, accuracy {self.accuracy:.1%}",
            f"wrong predictions: {errors} (area under the risk-coverage curve {self.area:.4f})",
            f"prediction sets that contain the true label, and classes per set, by alpha (candidate {self.candidate}):",
            " ".join(["", *[f"{'':12}", *(f"{alpha:>13g}" for alpha in self.alphas)]]),
        ]
        for one in self.sets:
            cells = [f"{share:>7.1%} {size:5.2f}" for share, size in zip(one.coverage, one.size, strict=True)]
            lines.append(" ".join(["", f"{one.kind + ' ' + one.score:12}", *cells]))
        return "\n".join(lines)


@usual_settings
def evaluate(
    estimator: PartialLabelClassifier,
    X: Any,
    y: Any,
    *,
    alphas: Sequence[float] = LEVELS,
    candidate: Candidate = "best",
    smooth: bool = False,
) -> Evaluation:
    """Compare a fitted classifier's predictions, sets and probabilities with true labels.

    Parameters
    ----------
    estimator : PartialLabelClassifier
        Fitted, with held-out rows.
    X : array or table
        Rows that it was not trained on.
    y : sequence
        The true label of each row, by name. Rows with None or NaN are ignored.
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
    arguments.instance("estimator", estimator, PartialLabelClassifier, "a fitted PartialLabelClassifier")
    levels = read_levels(alphas)
    targets.check_index(X, y, "y")
    rules = [Rule(kind, score, candidate, smooth) for kind in KINDS for score in SCORES]
    p, p_values = estimator.predict_all(X, rules)
    labels, known = targets.number(y, estimator.classes_.tolist(), len(p))
    if not known.any():
        raise ValueError(f"none of {len(known)} rows has a true label; at least one is needed")
    true = torch.from_numpy(labels[known])
    top, best = torch.from_numpy(p[known]).max(-1)
    wrong = (best != true).double()
    _, coverage, risk = metrics.risk_coverage(top, wrong)
    points = torch.linspace(0, len(true) - 1, min(len(true), _MOST_POINTS), dtype=torch.float32).round().long()
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
    """Plot coverage against size of the prediction sets, and error rate against the fraction of accepted rows.

    Parameters
    ----------
    evaluation : Evaluation
    path : path
        A file ending in .svg, .pdf or .png; replaced if it exists. The same evaluation gives the same bytes, with the
        same version of matplotlib.

    Raises
    ------
    ValueError
        If the file has another suffix.
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
    arguments.instance("evaluation", evaluation, Evaluation, "what candidly.estimator.evaluate returned")
    write_figure(arguments.path("path", path), lambda: _figure(evaluation))


def _figure(evaluation: Evaluation) -> "Figure":
    from matplotlib.figure import Figure

    figure = Figure((10, 4.2), dpi=200, layout="constrained")
    left, right = figure.subplots(1, 2)
    for one in evaluation.sets:
        style, colour, label = _STYLES[one.kind], _COLOURS[one.score], f"{one.kind} {one.score}"
        left.plot(one.size, one.coverage, style, color=colour, marker=".", label=label)
    _finish(left, "Prediction sets", "classes per set", "fraction of sets with the true label")
    right.plot(evaluation.coverage, evaluation.risk, color="black", label="measured with true labels")
    right.plot(evaluation.estimated_coverage, evaluation.estimated_risk, "--", color="0.5", label="estimated by fit")
    _finish(right, "Abstaining", "fraction of rows accepted", "error rate among them")
    right.set(xlim=(0, 1), ylim=(0, None))
    return figure


def _finish(axes: "Axes", title: str, x: str, y: str) -> None:
    axes.set(title=title, xlabel=x, ylabel=y)
    axes.grid(color="0.9")
    axes.legend(frameon=False)


def _plain(values: Tensor) -> tuple[float, ...]:
    return tuple(round(value, 6) for value in values.tolist())
