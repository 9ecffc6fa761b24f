"""The scikit-learn interface: `PartialLabelClassifier`, scorers that need no true labels, and evaluation with them."""

from candidly.conformal.calibration import Rule
from candidly.estimator.classifier import PartialLabelClassifier
from candidly.estimator.evaluation import Evaluation, SetCurve, draw, evaluate
from candidly.estimator.record import Cleaned, FitRecord
from candidly.estimator.scoring import approximated_accuracy, covering_rate

__all__ = [
    "Cleaned",
    "Evaluation",
    "FitRecord",
    "PartialLabelClassifier",
    "Rule",
    "SetCurve",
    "approximated_accuracy",
    "covering_rate",
    "draw",
    "evaluate",
]
