"""One model shared by several threads, and several trainings at the same time: the same bits as one after the other."""

import hashlib
import random
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pyarrow as pa
import pytest
import torch
from torch import nn

from candidly import PartialLabelClassifier, Problem, Recipe, fit
from candidly.cleaning import Conformal
from candidly.methods import METHODS

THREADS = 8
CALLS = 200
RNG = np.random.default_rng(0)
Y = np.arange(80) % 4
X = RNG.normal(size=(80, 5)) + Y[:, None]
S = RNG.random((80, 4)) < 0.3
S[np.arange(80), Y] = True


def classifier(seed=0, **settings):
    return PartialLabelClassifier(folds=2, max_epochs=3, device="cpu", random_state=seed, **settings)


def digest(model):
    """Hash everything that a model consists of."""
    found = hashlib.sha256()
    for name, value in sorted(model.parts()[0].items()):
        found.update(name.encode() + value.numpy().tobytes())
    return found.hexdigest()


def network():
    return nn.Sequential(nn.Linear(5, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 4))


@pytest.mark.parametrize("net", ["mlp", network])
def test_threads_that_predict_beside_trainings_get_the_bits_of_one_thread(net):
    fitted = classifier(net=net).fit(X, S)
    before = digest(fitted.model_)
    expected = [fitted.predict_all(X[i : i + 1]) for i in range(len(X))]
    values = [fitted.predict_p(X[i : i + 1]) for i in range(len(X))]

    def predict(thread):
        wrong = 0
        for call in range(CALLS):
            i = (7 * thread + call) % len(X)
            wrong += not np.array_equal(fitted.predict_proba(X[i : i + 1]), expected[i][0])
            if call % 10 == 0:
                wrong += not np.array_equal(fitted.predict_p(X[i : i + 1]), values[i])
        return wrong

    with ThreadPoolExecutor(THREADS + 2) as pool:
        predictions = [pool.submit(predict, thread) for thread in range(THREADS)]
        trainings = [pool.submit(lambda: classifier(net=net).fit(X, S)) for _ in range(4)]
        assert [call.result() for call in predictions] == [0] * THREADS
        assert {digest(call.result().model_) for call in trainings} == {before}
    assert digest(fitted.model_) == before


def test_trainings_in_threads_learn_what_they_learn_alone():
    jobs = [(name, seed) for name in METHODS for seed in (0, 1)]

    def train(job):
        name, seed = job
        problem = Problem.of(X, S, seeds=[seed], standardise=True)
        model = fit(problem, METHODS[name](), Conformal(warmup=1), Recipe(epochs=2, batch_size=16), device="cpu")
        return digest(model)

    alone = [train(job) for job in jobs]
    with ThreadPoolExecutor(THREADS) as pool:
        assert list(pool.map(train, jobs)) == alone


def test_rows_without_weight_are_quiet_in_threads(recwarn):
    columns = {f"x{j}": X[:, j] for j in range(5)}
    table = pa.table(columns | {"colour": np.where(np.arange(80) == 3, "new", "old")})
    weight = (np.arange(80) != 3).astype(float)

    def train(seed):
        return digest(classifier(seed).fit(table, S, sample_weight=weight).model_)

    with ThreadPoolExecutor(THREADS) as pool:
        found = list(pool.map(train, [0, 1] * 4))
    assert found == [train(0), train(1)] * 4
    assert not [one for one in recwarn if "categories" in str(one.message)]


def test_random_numbers_of_the_process_are_not_touched():
    def states():
        return random.getstate(), repr(np.random.get_state()), torch.get_rng_state().tolist()  # noqa: NPY002

    before = states()
    for net in ("mlp", network):
        classifier(net=net).fit(X, S).predict_set(X, smooth=True)
    assert states() == before


def test_results_cannot_be_overwritten_by_accident():
    fitted = classifier().fit(X, S)
    for array in (*fitted.history_.values(), fitted.candidate_proba_, fitted.confidence_, fitted.transduction_):
        with pytest.raises(ValueError, match="read-only"):
            array[:] = 0
    before = digest(fitted.model_), fitted.calibration_.risk.clone()
    fitted.risk_curve_["risk"][:] = 0
    assert digest(fitted.model_) == before[0]
    assert torch.equal(fitted.calibration_.risk, before[1])
