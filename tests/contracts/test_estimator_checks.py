"""Every check that scikit-learn has for estimators, with 1-D labels."""

import warnings

import pytest
from sklearn.utils.estimator_checks import parametrize_with_checks

from candidly import PartialLabelClassifier

pytestmark = pytest.mark.usefixtures("narrow_networks")

CHEAP = PartialLabelClassifier(folds=2, max_epochs=12, lr=0.03, device="cpu")


@pytest.mark.filterwarnings("default")  # the checks provoke warnings, and look at some of them
@parametrize_with_checks([CHEAP])
def test_scikit_learn_is_satisfied(estimator, check):
    with warnings.catch_warnings():
        warnings.simplefilter("default")
        assert check(estimator) is None  # it raises what is wrong
