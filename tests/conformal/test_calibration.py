"""What held-out rows say: p-values by every rule against loops, how often they cover, and the estimate of errors."""

import functools
import itertools
import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from candidly import conformal, metrics
from candidly.conformal.calibration import (
    CANDIDATES,
    KINDS,
    SCORES,
    Calibration,
    Rule,
    risk_curve,
    row_errors,
    uniforms,
)

RULES = [Rule(*parts) for parts in itertools.product(KINDS, SCORES, CANDIDATES, (False, True))]


def name(rule):
    return f"{rule.kind}-{rule.score}-{rule.candidate}{'-smooth' * rule.smooth}"


def made(n=40, classes=4, folds=3, seed=0):
    rng = torch.Generator().manual_seed(seed)
    p = torch.rand(n, classes, generator=rng).softmax(-1)
    S = torch.rand(n, classes, generator=rng) < 0.4
    S[torch.arange(n), torch.randint(classes, (n,), generator=rng)] = True
    return features(n, seed), p, S, torch.arange(n) % folds


def features(n, seed=0):
    return np.random.default_rng(seed).normal(size=(n, 2)).astype(np.float32)


def new_rows(n=12, folds=3):
    return features(n, seed=9), torch.stack([made(n, seed=k + 1)[1] for k in range(folds)]).double()


def loop_scores(conformity, S, candidate):
    """A row's scores, none or several."""
    inside = [float(value) for value, there in zip(conformity, S, strict=True) if there]
    if candidate == "singletons":
        return inside if len(inside) == 1 else []
    one = {"best": max, "worst": min, "mean": lambda values: sum(values) / len(values)}
    return inside if candidate == "pooled" else [one[candidate](inside)]


@pytest.mark.parametrize("rule", RULES, ids=name)
def test_p_values_equal_loops(rule):
    X, p, S, fold = made()
    calibration = Calibration.of(X, p, S, fold, 3, seed=5)
    Z, q = new_rows()
    u, v = uniforms(X, 5), uniforms(Z, 5)
    held = p if rule.score == "lac" else conformal.aps(p, u[:, 0])
    scores = [
        [s for i in range(40) if fold[i] == k for s in loop_scores(held[i], S[i], rule.candidate)] for k in range(3)
    ]
    found = calibration.p_values(Z, q, rule)
    assert found.dtype == torch.float64
    used = [0] if rule.kind == "split" else [0, 1, 2]
    total = sum(len(scores[k]) for k in used)
    assert calibration.number_of_scores(rule) == total
    if rule.kind == "averaged":
        q = q.mean(0, keepdim=True).expand_as(q)
    new = q.float() if rule.score == "lac" else conformal.aps(q.float(), v[:, 0])
    for i, j in itertools.product(range(12), range(4)):
        below = sum(s < float(new[k, i, j]) - 1e-6 for k in used for s in scores[k])
        chance = float(v[i, 1]) if rule.smooth else 1  # nothing ties
        assert float(found[i, j]) == pytest.approx((below + chance) / (total + 1), abs=1e-9)


def test_one_fold_is_split_conformal():
    X, p, S, fold = made(folds=1)
    calibration = Calibration.of(X, p, S, fold, 1)
    Z, q = new_rows(folds=1)
    for candidate, score in itertools.product(CANDIDATES, SCORES):
        found = [calibration.p_values(Z, q, Rule(kind, score, candidate)) for kind in KINDS]
        assert torch.equal(found[0], found[1])
        assert torch.equal(found[0], found[2])
    wanted = conformal.p_values(calibration.scores["lac.worst"], calibration.counts, q.float())[0]
    torch.testing.assert_close(calibration.p_values(Z, q, Rule(candidate="worst")).float(), wanted)


def test_folds_of_different_sizes_count_their_own_rows():
    X, p, S, _ = made(n=7)
    fold = torch.tensor([0, 0, 0, 0, 1, 1, -1])
    calibration = Calibration.of(X, p, S, fold, 2)
    assert calibration.counts.tolist() == [4, 2]
    Z, q = new_rows(5, folds=2)
    scores = [conformal.best(p[fold == k], S[fold == k]) for k in (0, 1)]
    below = sum((scores[k][:, None, None] <= q[k].float()[None]).sum(0) for k in (0, 1))
    torch.testing.assert_close(calibration.p_values(Z, q, Rule()), (1 + below).double() / 7)


def test_a_row_that_equals_a_held_out_one_ties_with_it():
    """Its probabilities come in float64, the scores are kept in float32."""
    X, p, S, fold = made(folds=1)
    calibration = Calibration.of(X, p, S, fold, 1, seed=3)
    for score in SCORES:
        found = calibration.p_values(X, p.double()[None], Rule("split", score, "pooled"))
        number, conformity = calibration.number_of_scores(Rule("split", score, "pooled")), p
        if score == "aps":
            conformity = conformal.aps(p, uniforms(X, 3)[:, 0])
        worst = conformal.worst(conformity, S).min()
        assert found[S].min() == 2 / (number + 1)  # the lowest score itself, which counts
        assert (conformity[S].min() == worst).all()


def test_without_held_out_rows_nothing_is_known():
    X, p, S, _ = made()
    calibration = Calibration.of(X, p, S, torch.full((len(p),), -1), 1)
    assert calibration.counts.tolist() == [0]
    assert calibration.risk.shape == (3, 0)
    with pytest.raises(ValueError, match=r"no rows were held out to calibrate on; set folds=5"):
        calibration.check(Rule())
    with pytest.raises(ValueError, match=r"no rows were held out to estimate errors on; set folds=5"):
        calibration.threshold(0.1)
    again = Calibration.of_tensors(calibration.tensors())
    assert again.counts.tolist() == [0]


def test_rules_that_cannot_be_followed():
    X, p, S, fold = made()
    calibration = Calibration.of(X, p, torch.ones_like(S), fold, 3)
    with pytest.raises(ValueError, match=r"no held-out row has a single candidate.*use candidate='worst'"):
        calibration.check(Rule(candidate="singletons"))
    for candidate in ("best", "mean", "pooled", "worst"):
        calibration.check(Rule(candidate=candidate))
    for wrong in ({"kind": "jackknife"}, {"score": "best"}, {"candidate": None}, {"smooth": "yes"}):
        with pytest.raises(ValueError, match=r"; use "):
            Rule(**wrong)


@pytest.mark.parametrize(
    ("candidate", "text"), [("best", "7 held-out rows are"), ("pooled", "7 candidates of held-out")]
)
def test_too_few_scores_are_pointed_out(candidate, text):
    X, p, _, fold = made(7, folds=1)
    calibration = Calibration.of(X, p, torch.eye(4)[torch.arange(7) % 4].bool(), fold, 1)
    with pytest.warns(UserWarning, match=text):
        calibration.check_level(0.1, Rule(candidate=candidate))
    calibration.check_level(0.2, Rule(candidate=candidate))
    calibration.check_level(0.1, Rule(candidate=candidate, smooth=True))  # whose p-values can be as low as 0


def test_chance_goes_by_content_and_seed():
    X = features(50)
    u = uniforms(X, 1)
    assert u.shape == (50, 2)
    assert ((u >= 0) & (u < 1)).all()
    assert len(u.flatten().unique()) == 100
    order = np.random.default_rng(1).permutation(50)
    assert torch.equal(uniforms(X[order], 1), u[order])
    assert torch.equal(uniforms(np.asfortranarray(X), 1), u)
    assert torch.equal(uniforms(X[7:8], 1), u[7:8])
    assert not torch.equal(uniforms(X, 2), u)
    assert uniforms(X[:0], 1).shape == (0, 2)
    images = np.zeros((2, 1, 3, 3), np.uint8)
    assert torch.equal(*uniforms(images, 1))
    many = uniforms(np.arange(20_000.0)[:, None], 0)
    for column in many.T:
        ideal = (torch.arange(20_000, dtype=torch.float64) + 0.5) / 20_000
        assert float((column.sort().values - ideal).abs().max()) < 1.95 / math.sqrt(20_000)
    assert abs(float(torch.corrcoef(many.T)[0, 1])) < 4 / math.sqrt(20_000)


@settings(max_examples=25, deadline=None)
@given(st.sampled_from(RULES), st.permutations(range(4)), st.permutations(range(12)), st.permutations(range(40)))
def test_sets_follow_rows_and_classes(rule, classes, rows, held_out):
    X, p, S, fold = made()
    p = (p * 16).round() / 16  # so that there are ties
    Z, q = new_rows()
    q = (q * 16).round() / 16
    found = Calibration.of(X, p, S, fold, 3, seed=1).p_values(Z, q, rule)
    moved = Calibration.of(
        X[held_out], p[held_out][:, classes], S[held_out][:, classes], fold[torch.tensor(held_out)], 3, seed=1
    )
    again = moved.p_values(Z[rows], q[:, rows][..., classes], rule)
    if rule.candidate == "mean":  # whose sums are rounded in another order
        assert ((again - found[rows][:, classes]).abs() <= 2 / 41).all()
    else:
        assert torch.equal(again, found[rows][:, classes])
    sets = [found > alpha for alpha in (0.05, 0.2, 0.5, 0.9)]
    assert all((small <= large).all() for large, small in itertools.pairwise(sets))


def simulate(seed, flip, m=40, tests=40, priors=(0.6, 0.3, 0.1), folds=1):
    """Rows of unequal classes with uniform wrong candidates, and probabilities that are no more than informative.

    Everything a row has is drawn independently of the other rows, so that they are exchangeable; each fold has networks
    of its own, which no row has seen.
    """
    rng = np.random.default_rng(seed)
    n, C = m + tests, len(priors)
    y = rng.choice(C, size=n, p=priors)
    X = rng.normal(size=(n, 2)).astype(np.float32)
    z = 1.5 * np.eye(C)[y] + rng.normal(size=(n, C))
    p = torch.from_numpy(np.stack([z + 0.7 * rng.normal(size=(n, C)) for _ in range(folds)])).float().softmax(-1)
    S = torch.from_numpy(np.eye(C, dtype=bool)[y] | (rng.random((n, C)) < flip))
    return X, p, S, torch.from_numpy(y)


@functools.cache
def calibrated(seed, flip, folds, true_labels, m):
    """What the first m rows say, and the other rows: the same for all rules, and slow to compute."""
    X, p, S, y = simulate(seed, flip, m=m, folds=folds)
    sets = torch.nn.functional.one_hot(y, S.shape[1]).bool() if true_labels else S
    fold = torch.arange(m) % folds
    own = p[fold, torch.arange(m)]
    return Calibration.of(X[:m], own, sets[:m], fold, folds, seed), X[m:], p[:, m:].double(), y[m:]


def coverage(rule, alpha, flip, *, folds=1, true_labels=False, m=40, repetitions=200):
    """Mean coverage over repetitions, its standard error, and the mean number of scores."""
    found, numbers = [], []
    for seed in range(repetitions):
        calibration, X, p, y = calibrated(seed, flip, folds, true_labels, m)
        if not calibration.number_of_scores(rule):
            continue
        kept = calibration.p_values(X, p, rule) > alpha
        found.append(kept[torch.arange(len(kept)), y].double().mean().item())
        numbers.append(calibration.number_of_scores(rule))
    assert len(found) > 0.95 * repetitions
    return np.mean(found), np.std(found) / math.sqrt(len(found)), numbers


@pytest.mark.parametrize("score", SCORES)
@pytest.mark.parametrize("alpha", [0.1, 0.25])
def test_split_sets_by_true_labels_cover_exactly(score, alpha):
    """The exact expectation is ⌈(m+1)(1-α)⌉/(m+1), and with smoothing 1 - α."""
    mean, error, _ = coverage(Rule("split", score), alpha, 0.3, true_labels=True)
    assert mean == pytest.approx(math.ceil(41 * (1 - alpha)) / 41, abs=3 * error)
    mean, error, _ = coverage(Rule("split", score, smooth=True), alpha, 0.3, true_labels=True)
    assert mean == pytest.approx(1 - alpha, abs=3 * error)


@pytest.mark.parametrize("flip", [0.2, 0.6])
@pytest.mark.parametrize("score", SCORES)
@pytest.mark.parametrize("candidate", ["worst", "singletons"])
@pytest.mark.parametrize("smooth", [False, True])
def test_guaranteed_split_sets_cover_at_least(flip, score, candidate, smooth):
    """Candidates are added whatever the row, so that rows with one are like all others."""
    mean, error, _ = coverage(Rule("split", score, candidate, smooth), 0.2, flip)
    assert mean >= 0.8 - 3 * error


@pytest.mark.parametrize("score", SCORES)
@pytest.mark.parametrize("candidate", ["worst", "singletons"])
def test_guaranteed_cross_conformal_sets_cover_at_least(score, candidate):
    mean, error, _ = coverage(Rule("cv+", score, candidate), 0.2, 0.3, folds=4)
    assert mean >= 1 - 2 * 0.2 - 2 * 3 / 44 - 3 * error


def opposed(seed, m, level):
    """Two folds' scores of true labels, each uniform; below twice the level, one is low where the other is high."""
    first = np.random.default_rng(seed).random(m)
    return torch.from_numpy(np.stack([first, np.where(first < 2 * level, 2 * level - first, first)]))[..., None]


def test_cross_conformal_sets_cover_as_proved_and_no_more():
    """Networks that disagree as much as they can leave 1 - 1.7α, well below 1 - α and above 1 - 2α - 2(K-1)/(m+K)."""
    alpha, m, found = 0.2, 300, []
    sets = torch.ones(m, 1, dtype=torch.bool)
    for seed in range(200):
        p = opposed(seed, m + 100, 0.85 * alpha)
        fold = torch.arange(m) % 2
        calibration = Calibration.of(features(m), p[fold, torch.arange(m)].float(), sets, fold, 2)
        found.append(float((calibration.p_values(features(100), p[:, m:], Rule()) > alpha).double().mean()))
    error = np.std(found) / math.sqrt(200)
    assert 1 - 2 * alpha - 2 / (m + 2) - 3 * error <= np.mean(found) < 1 - 1.5 * alpha


def test_averages_are_not_covered_by_the_scores_of_single_networks():
    """Networks that are sure, each of others: their mean conforms less than most held-out rows do, and is left out."""
    rng = np.random.default_rng(0)
    sure = torch.from_numpy(np.where(rng.random((4, 400, 1)) < 0.5, 0.95, 0.05))
    fold = torch.arange(200) % 4
    single = sure[fold, torch.arange(200)].float()
    calibration = Calibration.of(features(200), single, torch.ones(200, 1, dtype=torch.bool), fold, 4)
    kept = calibration.p_values(features(200), sure[:, 200:], Rule("averaged")) > 0.6
    assert float(kept.double().mean()) < 0.4 - 0.2


@pytest.mark.parametrize("candidate", ["best", "mean"])
def test_what_is_not_guaranteed_can_fail(candidate):
    """Where the best of many candidates is often wrong, or the mean of few above the true one's score."""
    rule, flip = Rule("split", candidate=candidate), {"best": 0.8, "mean": 0.3}[candidate]
    mean, error, _ = coverage(rule, 0.3 if candidate == "best" else 0.05, flip)
    assert mean < (0.7 if candidate == "best" else 0.95) - 3 * error


def test_row_errors_agree_with_the_metrics():
    _, p, S, _ = made(200)
    found = row_errors(p, S)
    assert float(found.mean()) == pytest.approx(1 - float(metrics.approximated_accuracy(p, S)))
    assert (found[~S.gather(1, p.argmax(1)[:, None])[:, 0]] == 1).all()
    alone = torch.nn.functional.one_hot(p.argmax(1), 4).bool()
    assert (row_errors(p, alone) == 0).all()
    assert ((found >= 0) & (found <= 1)).all()


def test_row_errors_equal_loops_at_any_temperature():
    _, p, S, _ = made()
    p = (8 * p).softmax(-1)
    for T in (1.0, 1.7, 6.0):
        found = row_errors(p.double(), S, T)
        for i in range(len(p)):
            values = p[i].tolist()
            best = values.index(max(values))
            inside = sum(value ** (1 / T) for value, there in zip(values, S[i], strict=True) if there)
            wanted = 1 - values[best] ** (1 / T) / inside if S[i, best] else 1.0
            assert float(found[i]) == pytest.approx(wanted, abs=1e-9)


def test_hotter_probabilities_are_riskier():
    X, p, S, fold = made(300)
    cool, hot = (risk_curve((8 * p).softmax(-1), S, T) for T in (1.0, 3.0))
    assert torch.equal(cool[:2], hot[:2])
    assert (cool[2] <= hot[2]).all()
    assert hot[2, -1] > cool[2, -1] + 0.05
    torch.testing.assert_close(Calibration.of(X, p, S, fold, 3, 0, 2.0).risk, risk_curve(p, S, 2.0))


def test_row_errors_survive_underflow():
    p, S = torch.tensor([[1.0, 0.0, 0.0]]), torch.tensor([[False, True, True]])
    assert row_errors(p, S).tolist() == [1]


def test_the_risk_curve_is_right_where_probabilities_are():
    """If labels are drawn from p and all classes are candidates, the estimate is the risk."""
    generator = torch.Generator().manual_seed(0)
    p = (1.5 * torch.randn(20_000, 4, generator=generator, dtype=torch.float64)).softmax(-1)
    y = torch.multinomial(p, 1, generator=generator)[:, 0]
    threshold, coverage, risk = risk_curve(p, torch.ones_like(p, dtype=torch.bool))
    assert len(threshold) <= 200
    for limit, share, estimate in zip(threshold[10::40], coverage[10::40], risk[10::40], strict=True):
        accepted = p.amax(1) >= limit
        assert float(accepted.double().mean()) == pytest.approx(float(share))
        wrong = (p.argmax(1) != y)[accepted].double()
        assert float(wrong.mean()) == pytest.approx(float(estimate), abs=4 * float(wrong.std()) / math.sqrt(len(wrong)))


def test_the_threshold_keeps_the_estimated_risk():
    X, p, S, fold = made(300)
    calibration = Calibration.of(X, p, S, fold, 3)
    errors, confidence = row_errors(p.double(), S), p.amax(1).double()
    limits = [float(risk) for risk in (0.5, 0.6, 0.7)]
    thresholds = [calibration.threshold(limit) for limit in limits]
    assert thresholds == sorted(thresholds, reverse=True)
    for limit, threshold in zip(limits, thresholds, strict=True):
        assert float(errors[confidence >= threshold].mean()) <= limit
    assert calibration.threshold(0.999) == float(confidence.min())
    with pytest.warns(UserWarning, match=r"max_risk is 0.001, but the estimated error rate is at least 0\.\d+"):
        assert Calibration.of(X, p, torch.ones_like(S), fold, 3).threshold(0.001) == math.inf


def test_survives_a_file():
    calibration = Calibration.of(*made(), 3, seed=2**31)
    again = Calibration.of_tensors(calibration.tensors())
    assert torch.equal(again.counts, calibration.counts)
    assert torch.equal(again.risk, calibration.risk)
    assert again.seed == 2**31
    assert again.scores.keys() == calibration.scores.keys()
    for key, scores in calibration.scores.items():
        assert torch.equal(again.scores[key], scores)


GOOD = Calibration.of(*made(), 3).tensors()


@pytest.mark.parametrize(
    "change",
    [
        {"calibration.lac.best": None},
        {"calibration.aps.pooled": None},
        {"calibration.counts": None},
        {"calibration.risk": None},
        {"calibration.seed": None},
        {"calibration.other": torch.zeros(1)},
        {"calibration.lac.worst": torch.zeros(3, 14, dtype=torch.int64)},
        {"calibration.lac.worst": torch.zeros(2, 14)},
        {"calibration.lac.worst": torch.full((3, 14), torch.nan)},
        {"calibration.lac.worst": GOOD["calibration.lac.worst"].flip(1)},
        {"calibration.lac.pooled": GOOD["calibration.lac.pooled"][:, :3]},
        {"calibration.aps.singletons": GOOD["calibration.aps.pooled"]},
        {"calibration.counts": torch.tensor([14, 13, 15])},
        {"calibration.counts": torch.tensor([14, 13, -1])},
        {"calibration.counts": torch.tensor([14.0, 13.0, 13.0])},
        {"calibration.risk": GOOD["calibration.risk"].float()},
        {"calibration.risk": GOOD["calibration.risk"][:2]},
        {"calibration.risk": GOOD["calibration.risk"].flip(1)},
        {"calibration.risk": GOOD["calibration.risk"] * torch.nan},
        {"calibration.risk": GOOD["calibration.risk"] + 1},
        {"calibration.seed": torch.tensor([1])},
        {"calibration.seed": torch.tensor(1.5)},
    ],
)
def test_damaged_scores_are_refused(change):
    tensors = GOOD | change
    with pytest.raises(ValueError, match="missing or damaged"):
        Calibration.of_tensors({key: value for key, value in tensors.items() if value is not None})
