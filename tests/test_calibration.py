import numpy as np
import pytest
import torch

from candidly import conformal
from candidly.calibration import Calibration


def made(n=40, classes=4, folds=3, seed=0):
    rng = torch.Generator().manual_seed(seed)
    p = torch.rand(n, classes, generator=rng).softmax(-1)
    S = torch.rand(n, classes, generator=rng) < 0.5
    S[torch.arange(n), torch.randint(classes, (n,), generator=rng)] = True
    return p, S, torch.arange(n) % folds


def test_p_values_of_training_rows_are_against_the_others_of_their_fold():
    p, S, fold = made()
    calibration = Calibration.of(p, S, fold, 3)
    found = calibration.own_p_values(p, S, fold, torch.ones(len(p), dtype=torch.bool))
    best = [max(p[i, j].item() for j in range(4) if S[i, j]) for i in range(len(p))]
    for i in range(len(p)):
        others = [best[v] for v in range(len(p)) if fold[v] == fold[i] and v != i]
        for j in range(4):
            wanted = (1 + sum(score <= p[i, j].item() for score in others)) / (1 + len(others))
            assert found[i, j].item() == pytest.approx(wanted)


def test_rows_that_do_not_calibrate_are_compared_with_all():
    p, S, fold = made(folds=1)
    calibration = Calibration.of(p[:30], S[:30], fold[:30], 1)
    member = torch.arange(40) < 30
    found = calibration.own_p_values(p, S, fold, member)
    plain = conformal.p_values(calibration.scores["best"], calibration.counts, p[None])[0]
    torch.testing.assert_close(found[30:], plain[30:])
    assert not torch.equal(found[:30], plain[:30])


def test_one_fold_is_split_conformal():
    p, S, fold = made(folds=1)
    calibration = Calibration.of(p, S, fold, 1)
    new = made(seed=1)[0][None]
    for name in ("best", "worst"):
        wanted = conformal.p_values(calibration.scores[name], calibration.counts, new)[0]
        torch.testing.assert_close(calibration.p_values(new, name), wanted)


def test_folds_of_different_sizes_count_their_own_rows():
    p, S, _ = made(n=7)
    fold = torch.tensor([0, 0, 0, 0, 1, 1, -1])
    calibration = Calibration.of(p, S, fold, 2)
    assert calibration.counts.tolist() == [4, 2]
    new = torch.stack([made(seed=1)[0][:5], made(seed=2)[0][:5]])
    scores = [conformal.best(p[fold == k], S[fold == k]) for k in (0, 1)]
    below = sum((scores[k][:, None, None] <= new[k][None]).sum(0) for k in (0, 1))
    torch.testing.assert_close(calibration.p_values(new), (1 + below) / 7)


def test_without_held_out_rows_nothing_is_known():
    p, S, _ = made()
    calibration = Calibration.of(p, S, torch.full((len(p),), -1), 1)
    assert calibration.counts.tolist() == [0]
    assert (
        calibration.own_p_values(p, S, torch.zeros(len(p), dtype=torch.int64), torch.zeros(len(p)).bool()) == 1
    ).all()


def test_sets_cover_at_their_level():
    """Split-conformal sets with single candidates cover 1 − α on average; folds=1, 200 repetitions."""
    rng, covered = np.random.default_rng(0), []
    for _ in range(200):
        y = rng.integers(3, size=120)
        p = torch.from_numpy(rng.dirichlet([1, 1, 1], size=120) + 0.7 * np.eye(3)[y]).float()
        S = torch.eye(3)[y].bool()
        calibration = Calibration.of(p[:60], S[:60], torch.zeros(60, dtype=torch.int64), 1)
        sets = calibration.p_values(p[None, 60:]) > 0.1
        covered.append(sets[torch.arange(60), torch.from_numpy(y[60:])].float().mean().item())
    error = np.std(covered) / np.sqrt(200)
    assert 0.9 - 3 * error <= np.mean(covered) <= 0.9 + 1 / 61 + 3 * error


def test_survives_a_file():
    calibration = Calibration.of(*made(), 3)
    again = Calibration.of_tensors(calibration.tensors())
    assert torch.equal(again.counts, calibration.counts)
    for name, scores in calibration.scores.items():
        assert torch.equal(again.scores[name], scores)


@pytest.mark.parametrize(
    "change",
    [
        {"calibration.best": None},
        {"calibration.counts": None},
        {"calibration.worst": torch.zeros(3, 14, dtype=torch.int64)},
        {"calibration.worst": torch.zeros(2, 14)},
        {"calibration.counts": torch.tensor([14, 13, 15])},
        {"calibration.counts": torch.tensor([14, 13, -1])},
        {"calibration.counts": torch.tensor([14.0, 13.0, 13.0])},
    ],
)
def test_damaged_scores_are_refused(change):
    tensors = Calibration.of(*made(), 3).tensors() | change
    with pytest.raises(ValueError, match="missing or damaged"):
        Calibration.of_tensors({name: value for name, value in tensors.items() if value is not None})
