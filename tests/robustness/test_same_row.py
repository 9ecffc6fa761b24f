"""The same row has the same result: alone, in any order, and among any other rows."""

import numpy as np
import pytest

from candidly import PartialLabelClassifier
from candidly.estimator import Rule

RULES = [Rule(), Rule(score="aps", smooth=True), Rule(kind="split", candidate="worst")]
ROWS = 300


def results(classifier, X):
    """Probabilities and the p-values by every rule."""
    p, p_values = classifier.predict_all(X, RULES)
    return np.stack([p, *p_values])


@pytest.mark.parametrize("classes", range(2, 34))
@pytest.mark.parametrize("net", ["mlp", "linear"])
def test_results_do_not_depend_on_a_rows_place(classes, net):
    check(classes, net, "cpu")


@pytest.mark.gpu
@pytest.mark.parametrize("classes", [2, 5, 10, 33])
def test_results_do_not_depend_on_a_rows_place_on_cuda(classes):
    check(classes, "mlp", "cuda")


def check(classes, net, device):
    rng = np.random.default_rng(classes)
    y = np.arange(120) % classes
    S = rng.random((120, classes)) < 0.3
    S[np.arange(120), y] = True
    S[:classes] = np.eye(classes)  # every class is a single candidate once
    X, new = rng.normal(size=(120, 7)) + y[:, None], rng.normal(size=(ROWS, 7)) * classes
    classifier = PartialLabelClassifier(
        net=net, folds=2, max_epochs=1, force_cleaning=True, device=device, random_state=0
    ).fit(X, S)
    together = results(classifier, new)
    reversed_ = results(classifier, new[::-1])[:, ::-1]
    assert np.array_equal(reversed_, together)
    for size in (63, 64, 65):
        parts = [results(classifier, new[start : start + size]) for start in range(0, ROWS, size)]
        assert np.array_equal(np.concatenate(parts, 1), together)
    for row in range(0, ROWS, 13):
        assert np.array_equal(results(classifier, new[row : row + 1])[:, 0], together[:, row])
    sets = classifier.predict_set(new, alpha=0.2)
    backwards = classifier.predict_set(new[::-1], alpha=0.2)
    assert np.array_equal(sets, backwards[::-1])
