"""The scikit-learn face: `PartialLabelClassifier`, scorers that need no true labels, and evaluation with them."""

from candidly.estimator.classifier import PartialLabelClassifier
from candidly.estimator.evaluation import Evaluation, SetCurve, draw, evaluate
from candidly.estimator.scoring import approximated_accuracy, covering_rate

__all__ = [
    "Evaluation",
    "PartialLabelClassifier",
    "SetCurve",
    "approximated_accuracy",
    "covering_rate",
    "draw",
    "evaluate",
]
