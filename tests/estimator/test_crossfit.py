"""Members and folds as runs of one model, and what each fold's networks say."""

import numpy as np
import pytest
import torch

from candidly.candidates import Candidates
from candidly.cleaning import Conformal
from candidly.conformal.calibration import Calibration, Rule
from candidly.engine.model import Model
from candidly.estimator import crossfit
from candidly.estimator.folds import make_plan
from candidly.methods import Crosel

NAMES = ("ant", "bee", "cow")
FAST = crossfit.QUALITIES["fast"]


def made(n=150, seed=0):
    rng = np.random.default_rng(seed)
    y = rng.integers(3, size=n)
    X = (rng.normal(size=(n, 3)) + 3 * np.eye(3)[y]).astype(np.float32)
    S = np.eye(3, dtype=bool)[y] | (rng.random((n, 3)) < 0.3)
    return X, Candidates(S, NAMES)


X, S = made()
PLAN = make_plan(X, S.matrix, np.ones(150, np.intp), 3, 0, np.random.default_rng(0))


def train(plan=PLAN, members=2, **changes):
    recipe = crossfit.make_recipe(len(plan.index), FAST, 3, None, 0.01, 1e-4)
    settings = {"method": "proden", "cleaner": None, "net": "linear", "device": "cpu", "patience": None}
    settings |= {"members": members, "progress": False}
    return crossfit.train(X, S, plan, None, np.random.SeedSequence(1), recipe, **(settings | changes))


@pytest.fixture(scope="module")
def model():
    return train()


def test_each_run_is_a_member_without_a_fold(model):
    assert model.problem.runs == 6
    assert model.problem.classes == NAMES
    assert model.kept.shape[1] == 0  # nothing is kept per row
    p = model.predict(X).double().view(2, 3, 150, 3).mean(0)
    for rows, some in crossfit.probabilities(model, X, 3, False):
        assert some.dtype == torch.float64
        torch.testing.assert_close(some, p[:, rows], atol=1e-6, rtol=0)


def test_a_fold_does_not_see_its_rows():
    """Changing what is held out changes other folds' networks only."""
    plain = train(members=1)
    moved = X.copy()
    moved[PLAN.index[PLAN.held_out(1)]] += 1
    recipe = crossfit.make_recipe(150, FAST, 3, None, 0.01, 1e-4)
    settings = {"method": "proden", "cleaner": None, "net": "linear", "device": "cpu", "patience": None}
    other = crossfit.train(
        moved, S, PLAN, None, np.random.SeedSequence(1), recipe, members=1, progress=False, **settings
    )
    same = (plain.predict(X) == other.predict(X)).flatten(1).all(1)
    assert same.tolist() == [False, True, False]


def test_blocks_do_not_change_a_row(model):
    whole = torch.cat([some for _, some in crossfit.probabilities(model, X, 3, False)], 1)
    for rows in (slice(0, 1), slice(60, 70), slice(149, 150)):
        alone = torch.cat([some for _, some in crossfit.probabilities(model, X[rows], 3, False)], 1)
        assert torch.equal(alone, whole[:, rows])
    assert [rows for rows, _ in crossfit.probabilities(model, X, 3, False)] == [
        slice(0, 64),
        slice(64, 128),
        slice(128, 150),
    ]


def test_rows_are_scored_by_the_networks_of_their_fold(model):
    found = crossfit.out_of_fold(model, X, torch.from_numpy(PLAN.row_fold), PLAN.folds, False)
    whole = torch.cat([some for _, some in crossfit.probabilities(model, X, 3, False)], 1)
    assert found.dtype == torch.float32
    for row in range(0, 150, 7):
        assert torch.equal(found[row], whole[PLAN.row_fold[row], row].float())


def test_networks_predict_only_the_rows_of_their_fold(model, monkeypatch):
    seen, original = [], Model.predict_blocks
    monkeypatch.setattr(
        Model, "predict_blocks", lambda model, X, index: seen.append(index) or original(model, X, index)
    )
    crossfit.out_of_fold(model, X, torch.from_numpy(PLAN.row_fold), PLAN.folds, False)
    (index,) = seen
    for run, rows in enumerate(index.tolist()):
        held_out = np.flatnonzero(PLAN.row_fold == run % PLAN.folds).tolist()
        assert rows == held_out + [0] * (len(rows) - len(held_out))


@pytest.mark.parametrize(("patience", "most"), [(None, 20), (3, 60)])
def test_few_held_out_rows_are_watched_unless_they_stop_the_training(patience, most, monkeypatch):
    seen, original = [], crossfit.fit
    monkeypatch.setattr(crossfit, "WATCHED", 20)
    monkeypatch.setattr(
        crossfit, "fit", lambda *given, **other: seen.extend(other["held_out"]) or original(*given, **other)
    )
    train(patience=patience)
    assert len(seen) == 6
    for run, rows in enumerate(seen):
        assert most / 2 <= len(rows) <= most
        assert (PLAN.fold[rows] == run % PLAN.folds).all()


def test_several_rules_predict_once(model, monkeypatch):
    p = crossfit.out_of_fold(model, X, torch.from_numpy(PLAN.row_fold), PLAN.folds, False)
    index, fold = torch.from_numpy(PLAN.index), torch.from_numpy(PLAN.fold)
    calibration = Calibration.of(X[PLAN.index], p[index], torch.from_numpy(S.matrix.copy())[index], fold, 3)
    rules = [Rule(), Rule("split", "aps", "worst"), Rule("averaged", "aps", smooth=True)]
    new = made(70, seed=1)[0]
    alone = [crossfit.predict(model, calibration, new, [rule], False)[1][0] for rule in rules]
    calls, original = [], type(model).predict_blocks
    monkeypatch.setattr(type(model), "predict_blocks", lambda *arguments: calls.append(1) or original(*arguments))
    p, together = crossfit.predict(model, calibration, new, rules, False)
    assert len(calls) == 1
    np.testing.assert_allclose(p, model.predict(new).double().mean(0), atol=1e-6)
    for one, other in zip(alone, together, strict=True):
        assert one.shape == (70, 3)
        np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize(
    ("rows", "epochs", "batch"),
    [
        (20, 50, 16),
        (1000, 50, 16),
        (1400, 37, 16),
        (1999, 50, 32),
        (2000, 25, 32),
        (10**4, 25, 128),
        (10**5, 8, 256),
        (10**6, 5, 256),
    ],
)
def test_the_recipe_suits_the_rows(rows, epochs, batch):
    found = crossfit.make_recipe(rows, FAST, None, None, 0.02, 0.5)
    assert (found.epochs, found.batch_size, found.max_lr, found.weight_decay) == (epochs, batch, 0.02, 0.5)
    given = crossfit.make_recipe(rows, FAST, np.int64(7), np.int64(40), 0.02, 0.5)
    assert (given.epochs, given.batch_size) == (7, 40)


def test_a_warm_up_by_name_is_short_in_a_short_training():
    for epochs, warmup in ((1, 1), (4, 2), (19, 9), (50, 10)):
        method, cleaner = crossfit.find_parts("crosel", "conformal", epochs)
        assert (method.warmup, cleaner.warmup) == (warmup, warmup)
    method, cleaner = crossfit.find_parts(Crosel(), Conformal(), 4)
    assert (method.warmup, cleaner.warmup) == (10, 10)
    assert crossfit.find_parts("proden", None, 4)[1] is None
