"""Labels from votes and held-out probabilities, and what is known about annotators."""

import numpy as np
import pytest
import torch

from candidly import from_annotations
from candidly.candidates import annotators
from candidly.candidates.annotators import fit_posterior


def simulate(seed, accuracy, n=600, C=4, per_row=3):
    """Return true labels and votes of annotators who err at random."""
    rng = np.random.default_rng(seed)
    y = rng.integers(C, size=n)
    worker = rng.random((n, len(accuracy))).argsort(1)[:, :per_row].ravel()
    row = np.repeat(np.arange(n), per_row)
    right = rng.random(len(row)) < np.array(accuracy)[worker]
    label = np.where(right, y[row], (y[row] + rng.integers(1, C, size=len(row))) % C)
    return y, from_annotations({"task": row, "worker": worker, "label": label}, classes=range(C))


def fit(votes, log_p):
    return fit_posterior(log_p, votes.table, votes.agreement.workers.tolist(), anonymous=votes.anonymous)


def test_an_expert_outvotes_others():
    y, votes = simulate(0, [0.98, 0.5, 0.5, 0.5, 0.5])
    found = fit(votes, torch.zeros(600, 4))
    labels = found.p.argmax(1).numpy()
    majority = np.array([-1 if one is None else one for one in votes.majority()])
    assert (labels == y).mean() > (majority == y).mean() + 0.1
    assert found.p.sum(1).numpy() == pytest.approx(1, abs=1e-5)
    best = max(found.annotators, key=lambda one: one.accuracy)
    assert best.name == 0


def test_intervals_of_accuracy_cover():
    inside = []
    for seed in range(8):
        accuracy = [0.9, 0.8, 0.6, 0.4]
        y, votes = simulate(seed, accuracy)
        p = torch.full((600, 4), 0.1)
        p[torch.arange(600), torch.from_numpy(y)] = 0.7
        for one in fit(votes, p.log()).annotators:
            cast = votes.table.worker == votes.workers.index(one.name)
            truth = (votes.table.label[cast] == y[votes.table.task[cast]]).mean()
            inside.append(one.low <= truth <= one.high)
            assert one.votes == cast.sum()
            assert one.low < one.accuracy < one.high
    assert np.mean(inside) > 0.9


def test_a_label_without_a_vote_is_possible():
    y, votes = simulate(0, [0.5, 0.5], per_row=1)
    p = torch.full((600, 4), 0.001)
    p[torch.arange(600), torch.from_numpy(y)] = 0.997
    labels = fit(votes, p.log()).p.argmax(1).numpy()
    assert (labels == y).mean() > 0.99
    assert (votes.candidates.matrix[np.arange(600), y]).mean() < 0.6


def test_useless_probabilities_do_not_swamp_votes():
    y, votes = simulate(1, [0.85] * 5)
    rng = np.random.default_rng(0)
    p = torch.full((600, 4), 1e-6)
    p[torch.arange(600), torch.from_numpy(rng.integers(4, size=600))] = 1.0
    found = fit(votes, p.log())
    assert found.temperature > 10
    alone = fit(votes, torch.zeros(600, 4))
    assert (found.p.argmax(1).numpy() == y).mean() > (alone.p.argmax(1).numpy() == y).mean() - 0.01


def test_confusions_are_named():
    rng = np.random.default_rng(0)
    y = rng.integers(3, size=300)
    table = {"ann": y.tolist(), "bob": y.tolist(), "eve": np.where(y == 1, 2, y).tolist()}
    votes = from_annotations(table, columns=["ann", "bob", "eve"]).with_classes(["cat", "dog", "owl"])
    eve = fit(votes, torch.zeros(300, 3)).annotators[2]
    assert (eve.confusions[0].true, eve.confusions[0].given) == ("dog", "owl")
    assert eve.confusions[0].votes == pytest.approx((y == 1).sum(), abs=1)
    assert eve.confusions[0].fraction > 0.95


def test_anonymous_columns_share_a_matrix():
    y, votes = simulate(2, [0.9, 0.5, 0.7], per_row=3)
    matrix = np.full((600, 3), -1)
    matrix[votes.table.task, votes.table.worker] = votes.table.label
    order = np.array([votes.tasks.index(i) for i in range(600)])
    shuffled = np.random.default_rng(0).permuted(matrix[order], axis=1)
    columns = {f"vote {k}": shuffled[:, k].tolist() for k in range(3)}
    found, again = (
        fit(from_annotations(one, columns=list(one), anonymous=True), torch.zeros(600, 4))
        for one in (columns, {name: columns[name] for name in reversed(columns)})
    )
    torch.testing.assert_close(found.p, again.p)
    assert [one.name for one in found.annotators] == [None]
    assert found.annotators[0].votes == 1800
    assert found.annotators[0].low < (votes.table.label == y[np.array(votes.tasks)][votes.table.task]).mean()


def test_blocks_do_not_change_the_result(monkeypatch):
    _, votes = simulate(3, [0.9, 0.6, 0.7])
    log_p = torch.randn(600, 4, generator=torch.Generator().manual_seed(0)).log_softmax(1)
    whole = fit(votes, log_p)
    monkeypatch.setattr(annotators, "_BLOCK_VALUES", 100)
    parts = fit(votes, log_p)
    torch.testing.assert_close(whole.p, parts.p, atol=1e-6, rtol=0)
    for one, other in zip(whole.annotators, parts.annotators, strict=True):
        assert one.accuracy == pytest.approx(other.accuracy, abs=1e-6)


def test_perfect_votes():
    votes = from_annotations({"ann": ["a", "b"] * 9, "bob": ["a", "b"] * 9}, columns=["ann", "bob"])
    found = fit(votes, torch.zeros(18, 2))
    assert found.p.argmax(1).tolist() == [0, 1] * 9
    assert found.p.isfinite().all()
    assert all(one.high == pytest.approx(1) for one in found.annotators)


def test_selected_votes():
    _, votes = simulate(4, [0.9, 0.6, 0.7], n=30)
    chosen = votes.select([5, 2, 9])
    assert chosen.tasks == tuple(votes.tasks[i] for i in (5, 2, 9))
    np.testing.assert_array_equal(chosen.counts, votes.counts[[5, 2, 9]])
    np.testing.assert_array_equal(chosen.weights(), votes.weights()[[5, 2, 9]])
    assert (np.diff(chosen.table.task) >= 0).all()
    whole = votes.select(range(30))
    assert whole.workers == tuple(sorted(votes.workers, key=votes.workers.index))
    np.testing.assert_array_equal(whole.agreement.workers, votes.agreement.workers)
    for wrong in ([0, 0], [30], [-1], [0.5]):
        with pytest.raises(ValueError, match="tasks must be different numbers from 0 to 29"):
            votes.select(wrong)
    with pytest.raises(ValueError, match="anonymous"):
        from_annotations({"ann": ["a"]}, columns=["ann"], anonymous="yes")
