"""Conformal p-values against crepes and prediction sets against MAPIE, on values of which 1 - p is exact."""

import numpy as np
import pytest
import torch
from crepes import ConformalClassifier
from mapie.classification import SplitConformalClassifier
from sklearn.base import BaseEstimator, ClassifierMixin

from candidly import conformal
from tests.oracles.conformal import threshold

N, C = 30, 4
KINDS = ("distinct", "ties", "zeros")


def above(scores, counts, p, alpha):
    """Return the sets that `PartialLabelClassifier.predict_set` makes of p-values."""
    return conformal.p_values(scores, counts, p) > alpha


class Given(ClassifierMixin, BaseEstimator):
    """A fitted classifier that returns the probabilities it is given as features."""

    def __init__(self, num_classes=C):
        self.classes_ = np.arange(num_classes)
        self.fitted_ = True

    def fit(self, X, y):
        raise AssertionError("this classifier is fitted already")

    def predict_proba(self, X):
        return np.asarray(X)

    def predict(self, X):
        return np.asarray(X).argmax(1)


def probabilities(kind, n, rng):
    """Rows of multiples of 2^-20 (distinct) or 1/8 (ties, zeros) that sum to one, so that nothing is rounded."""
    if kind == "distinct":
        cuts = np.sort(rng.integers(1, 2**20, size=(n, C - 1)), axis=1)
        return np.diff(cuts, prepend=0, append=2**20, axis=1) / 2**20
    weights = [0.25, 0.25, 0.25, 0.25] if kind == "ties" else [0.7, 0.3, 0.0, 0.0]
    return rng.multinomial(8, weights, size=n) / 8


def calibration(kind, m, rng):
    """Probabilities, labels and the labels' sorted probabilities."""
    p, y = probabilities(kind, m, rng), rng.integers(C, size=m)
    y[:C] = np.arange(C)  # MAPIE wants every class
    return p, y, torch.from_numpy(np.sort(p[np.arange(m), y]))


def stack(scores):
    """Pad runs of different length with +inf."""
    counts = torch.tensor([len(one) for one in scores])
    return torch.nn.utils.rnn.pad_sequence(scores, batch_first=True, padding_value=torch.inf), counts


@pytest.mark.parametrize("kind", KINDS)
def test_p_values_equal_crepes(kind):
    rng = np.random.default_rng(0)
    runs = [calibration(kind, m, rng)[2] for m in (1 + C, 19, 40)]
    p = np.stack([probabilities(kind, N, rng) for _ in runs])
    p[0, 0], p[1, 0] = [1.0, 0.0, 0.0, 0.0], [0.0, 0.0, 0.0, 1.0]
    ours = conformal.p_values(*stack(runs), torch.from_numpy(p))
    for run, scores in enumerate(runs):
        peer = ConformalClassifier().fit(-scores.numpy()).predict_p(-p[run], smoothing=False)
        assert np.array_equal(ours[run].numpy(), peer)
        alone = conformal.p_values(scores[None], torch.tensor([len(scores)]), torch.from_numpy(p[run : run + 1]))
        assert torch.equal(alone[0], ours[run])


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("m", [1 + C, 19, 40])
def test_smoothed_p_values_equal_crepes(kind, m):
    rng = np.random.default_rng(m)
    scores, p = calibration(kind, m, rng)[2], probabilities(kind, N, rng)
    peer = ConformalClassifier().fit(-scores.numpy()).predict_p(-p, smoothing=True, seed=7)
    u = torch.from_numpy(np.random.RandomState(7).rand(N, C))  # crepes' draws, one per row and class
    ours = conformal.smoothed_p_values(scores[None], torch.tensor([m]), torch.from_numpy(p)[None], u)
    np.testing.assert_allclose(ours.numpy(), peer, rtol=1e-15)


@pytest.mark.parametrize("m", [31, 40])
def test_adaptive_sets_equal_mapie(m):
    """Where probabilities do not tie; MAPIE takes labels that do in the order of their columns."""
    rng = np.random.default_rng(m)
    p_cal, y, _ = calibration("distinct", m, rng)
    p, alphas = probabilities("distinct", N, rng), [0.1, 0.2, 0.3, 0.5]
    peer = SplitConformalClassifier(
        Given(), [1 - a for a in alphas], conformity_score="aps", prefit=True, random_state=5
    ).conformalize(p_cal, y)
    sets = peer.predict_set(p, conformity_score_params={"include_last_label": "randomized"})[1]
    chance = [1 - np.random.RandomState(5).uniform(size=n) for n in (m, N)]  # u is the share that is not left out there
    scores, new = (
        conformal.aps(torch.from_numpy(one), torch.from_numpy(u)) for one, u in zip((p_cal, p), chance, strict=True)
    )
    truth = torch.nn.functional.one_hot(torch.from_numpy(y), C).bool()
    s = conformal.best(scores, truth).sort().values[None]
    for k, alpha in enumerate(alphas):
        ours = above(s, torch.tensor([m]), new[None], alpha)[0]
        assert np.array_equal(ours.numpy(), sets[..., k])
    assert not sets.all()


def mapie_sets(p_cal, y_cal, p, alphas):
    """MAPIE's sets, (len(alphas), n, C)."""
    peer = SplitConformalClassifier(Given(), [1 - a for a in alphas], conformity_score="lac", prefit=True)
    sets = peer.conformalize(p_cal, y_cal).predict_set(p)[1]
    return np.moveaxis(sets, -1, 0)


# With m = 31 and 63 the dyadic levels make α(m+1) an integer, exactly in binary: the tie that the rule must get right.
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("m", [31, 37, 63])
def test_sets_and_thresholds_equal_mapie(kind, m):
    rng = np.random.default_rng(m)
    alphas = [1 / 16, 0.1, 0.125, 0.2, 0.25, 0.3, 0.5, 0.75, 0.9]
    runs = [calibration(kind, size, rng) for size in (m, m + 32)]
    p = np.stack([probabilities(kind, N, rng) for _ in runs])
    p[:, : N // 2] = np.stack([p_cal[: N // 2] for p_cal, _, _ in runs])  # ties with the scores themselves
    scores, counts = stack([one for _, _, one in runs])
    peers = np.stack([mapie_sets(p_cal, y, p[run], alphas) for run, (p_cal, y, _) in enumerate(runs)], axis=1)
    for alpha, peer in zip(alphas, peers, strict=True):
        ours = above(scores, counts, torch.from_numpy(p), alpha)
        assert np.array_equal(ours.numpy(), peer)
        level = torch.full((len(runs),), alpha, dtype=torch.float64)
        t = threshold(scores, counts, level)
        assert np.array_equal((torch.from_numpy(p) >= t[:, None, None]).numpy(), peer)
        for run, (_, _, one) in enumerate(runs):
            arguments = one[None], counts[run : run + 1]
            alone = above(*arguments, torch.from_numpy(p[run : run + 1]), alpha)
            assert torch.equal(alone[0], ours[run])
            assert torch.equal(threshold(*arguments, level[:1])[0], t[run])
    assert peers.any()
    assert not peers.all()


def test_where_mapie_differs():
    """Three differences, all MAPIE's: rounding of (m+1)(1-α), its tolerance of 1e-8, and its refusal of few rows."""
    scores = np.arange(1, 10) / 16
    p_cal = np.stack([scores, 1 - scores], 1)
    p_cal[-2:] = p_cal[-2:, ::-1]
    y = np.array([0] * 7 + [1] * 2)  # both classes; each row's label has the row's score
    p = np.stack([np.arange(17) / 16, 1 - np.arange(17) / 16], 1)

    def both(p_cal, y, p, alpha):
        s = torch.from_numpy(np.sort(p_cal[np.arange(len(y)), y]))[None]
        peer = SplitConformalClassifier(Given(2), 1 - alpha, prefit=True).conformalize(p_cal, y).predict_set(p)[1]
        return above(s, torch.tensor([len(y)]), torch.from_numpy(p)[None], alpha)[0], peer[..., 0]

    # (m+1)(1-α) = 10 · 0.3 is 3, but in floating point 3.0000000000000004: MAPIE takes the 6th smallest score, not the
    # 7th, which keeps one label more than its rule says.
    ours, peer = both(p_cal, y, p, 0.7)
    assert p[ours[:, 0].numpy(), 0].min() == 7 / 16
    assert p[peer[:, 0], 0].min() == 6 / 16
    # A label that misses the threshold by less than 1e-8 is in MAPIE's set.
    near = np.array([[5 / 16 - 1e-9, 11 / 16 + 1e-9]])
    ours, peer = both(p_cal, y, near, 0.5)
    assert ours.tolist() == [[False, True]]
    assert peer.tolist() == [[True, True]]
    # ⌊α(m+1)⌋ = 0: we keep everything, MAPIE asks for more rows.
    with pytest.raises(ValueError, match="Number of samples"):
        both(p_cal, y, p, 0.05)
    s = torch.from_numpy(scores)[None]
    assert above(s, torch.tensor([9]), torch.from_numpy(p)[None], 0.05).all()
