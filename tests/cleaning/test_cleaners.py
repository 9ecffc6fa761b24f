"""Cleaners: what they may never do, whom they calibrate on, and slow literal twins."""

import copy
import dataclasses
import itertools
import json
import math
import warnings
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from torch.nn import functional as F

from candidly.bench import Spec
from candidly.bench.run import Run, execute
from candidly.cleaning import Cleaner, Clsp, Conformal, Oracle, Random
from candidly.data import Dataset
from candidly.engine.nets.neighbours import nearest
from candidly.engine.problem import Problem
from candidly.engine.recipe import Recipe
from candidly.engine.training import Training
from candidly.methods import Proden
from tests.contracts.cases import blobs, equal, train
from tests.contracts.test_graph_safety import Capturable

N, B, RUNS, EPOCHS = 24, 8, 2, 4


class FakeBatch:
    """What a cleaner may use of a batch."""

    def __init__(self, problem, rows, noise=None):
        self.rows, self.uniforms, self.drawn = rows, noise, 0
        self.S = self.take(problem.sets)

    def take(self, state):
        return torch.stack([one[rows] for one, rows in zip(state, self.rows, strict=True)])

    def noise(self, k):
        self.drawn += k
        return self.uniforms[..., self.drawn - k : self.drawn]


def dyadic(generator, *shape):
    """Probabilities in multiples of 1/64: sums of them are exact in whatever order."""
    cuts = generator.integers(0, 65, (*shape[:-1], shape[-1] - 1))
    cuts = np.sort(np.concatenate([np.zeros((*shape[:-1], 1)), cuts, np.full((*shape[:-1], 1), 64)], -1), -1)
    return torch.from_numpy(np.diff(cuts) / 64)


def random_sets(generator, *shape):
    S = torch.from_numpy(generator.random(shape) < 0.5)
    chosen = torch.from_numpy(generator.integers(0, shape[-1], (*shape[:-1], 1)))
    return S.scatter_(-1, chosen, True)


def world(seed, classes):
    """Random sets, probabilities, batches and a method's own supports for a few epochs."""
    generator = np.random.default_rng(seed)
    S = random_sets(generator, N, classes)
    S[: N // 2] = F.one_hot(torch.from_numpy(generator.integers(0, classes, N // 2)), classes).bool()
    rows = (torch.arange(N), torch.arange(N // 4, N))
    problem = Problem(torch.from_numpy(generator.normal(size=(N, 2))), S, rows, (seed, seed + 1))
    tables = dyadic(generator, EPOCHS, RUNS, N, classes)
    batches = torch.from_numpy(np.stack([generator.permutation(N)[:B] for _ in range(EPOCHS * RUNS)]))
    within = random_sets(generator, EPOCHS, RUNS, B, classes)
    return problem, tables, dyadic(generator, EPOCHS, RUNS, B, classes), batches.view(EPOCHS, RUNS, B), within


def visit(cleaner, problem, tables, p, rows, within):
    """Set a cleaner up, calibrate it every epoch and let it clean one batch per epoch."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # levels that can never prune are part of the space
        cleaner.setup(problem)
    kept, allowed = [], []
    for epoch in range(EPOCHS):

        def predict(chosen, table=tables[epoch]):
            return table if chosen is None else torch.stack([t[c] for t, c in zip(table, chosen, strict=True)])

        cleaner.calibrate(predict, epoch)
        batch = FakeBatch(problem, rows[epoch])
        inside = batch.S & within[epoch]
        allowed.append(torch.where(inside.any(-1, keepdim=True), inside, batch.S))
        kept.append(cleaner.keep(p[epoch], allowed[-1], batch))
    return torch.stack(kept), torch.stack(allowed)


@st.composite
def conformals(draw):
    options = {
        "rule": draw(st.sampled_from(["revocable", "permanent"])),
        "level": draw(st.sampled_from(["off_candidate_mass", "fixed", "remark"])),
        "alpha": draw(st.sampled_from([None, 0.0, 0.05, 0.25, 0.5, 0.9])),
        "score": draw(st.sampled_from(["best", "worst", "mean", "singletons"])),
        "calibration": draw(st.sampled_from(["reuse", "holdout", "auto"])),
        "warmup": draw(st.integers(0, 2)),
        "finite": draw(st.booleans()),
        "slack": draw(st.sampled_from([0.0, 0.125])),
        "dkw": draw(st.booleans()),
        "stop": draw(st.sampled_from([0.02, 0.2, 1.0])),
    }
    revocable = options["rule"] == "revocable"
    per_batch = revocable and options["level"] == "off_candidate_mass" and draw(st.booleans())
    return Conformal(**options, per_batch=per_batch, shrink=revocable and draw(st.booleans()))


worlds = {"cleaner": conformals(), "seed": st.integers(0, 2**20), "classes": st.integers(2, 5)}


def visit_or_assume(cleaner, *arguments):
    try:
        return visit(cleaner, *arguments)
    except ValueError as error:  # a holdout without a single-candidate row
        assert cleaner.score == "singletons"
        assert "single candidate" in str(error)  # noqa: PT017
        assume(False)


@given(**worlds)
@settings(max_examples=150)
def test_conformal_keeps_a_non_empty_subset(cleaner, seed, classes):
    kept, allowed = visit_or_assume(cleaner, *world(seed, classes))
    assert kept.dtype == torch.bool
    assert kept.any(-1).all()
    assert not (kept & ~allowed).any()
    assert torch.equal(kept[: cleaner.warmup], allowed[: cleaner.warmup])  # nothing goes during the warm-up
    assert not any(value.isnan().any() for value in cleaner.facts().values())
    lost = cleaner.facts()["estimated_lost"]
    assert ((lost >= 0) & (lost < 1)).all()


@given(**worlds)
@settings(max_examples=60)
def test_conformal_commutes_with_class_permutations(cleaner, seed, classes):
    problem, tables, p, rows, within = world(seed, classes)
    order = torch.from_numpy(np.random.default_rng(seed).permutation(classes))
    kept, _ = visit_or_assume(copy.copy(cleaner), problem, tables, p, rows, within)
    turned = dataclasses.replace(problem, S=problem.S[:, order])
    again, _ = visit(cleaner, turned, tables[..., order], p[..., order], rows, within[..., order])
    assert torch.equal(again, kept[..., order])


@given(**worlds)
@settings(max_examples=60)
def test_conformal_commutes_with_row_permutations(cleaner, seed, classes):
    problem, tables, p, rows, within = world(seed, classes)
    order = torch.from_numpy(np.random.default_rng(seed).permutation(B))
    kept, _ = visit_or_assume(copy.copy(cleaner), problem, tables, p, rows, within)
    again, _ = visit(cleaner, problem, tables, p[:, :, order], rows[:, :, order], within[:, :, order])
    assert torch.equal(again, kept[:, :, order])


@given(seed=st.integers(0, 2**20), classes=st.integers(2, 5), finite=st.booleans())
@settings(max_examples=40)
def test_the_permanent_rule_only_ever_removes_and_only_from_training_rows(seed, classes, finite):
    problem, tables, p, rows, within = world(seed, classes)
    cleaner = dataclasses.replace(Conformal.algorithm1(), warmup=1, finite=finite)
    before = [problem.sets]
    calibrate = cleaner.calibrate

    def watch(predict, epoch):
        calibrate(predict, epoch)
        before.append(cleaner.pruned.clone())

    cleaner.calibrate = watch
    visit(cleaner, problem, tables, p, rows, within)
    for old, new in itertools.pairwise(before):
        assert not (new & ~old).any()
        assert new.any(-1).all()
    others = ~cleaner.problem.training_mask
    assert torch.equal(before[-1][others], problem.sets[others])


def test_conformal_does_prune():
    """The properties above would hold for a cleaner that does nothing."""
    pruned = 0
    for seed in range(20):
        for cleaner in (Conformal(warmup=1), dataclasses.replace(Conformal.algorithm1(), warmup=1)):
            kept, allowed = visit(cleaner, *world(seed, 4))
            pruned += int((kept != allowed).any())
    assert pruned > 30


def literal_published(p, S, scores, epoch, warmup=10):
    """One batch (B, C) under the published rule, entry by entry: a label with pv > 0.05 + β is kept."""
    beta = sum(float(p[i, j]) for i in range(len(p)) for j in range(p.shape[1]) if not S[i, j]) / len(p)
    epsilon = 0.5 ** (epoch - warmup + 1)
    kept = torch.zeros_like(S)
    for i, j in itertools.product(*map(range, S.shape)):
        greater = sum(1 - s >= 1 - (1 - epsilon) * float(p[i, j]) for s in scores)
        kept[i, j] = S[i, j] and (1 + greater) / (len(scores) + 1) > 0.05 + beta
    return torch.stack([new if new.any() else old for new, old in zip(kept, S, strict=True)])


@given(seed=st.integers(0, 2**20), classes=st.integers(2, 5))
@settings(max_examples=30)
def test_the_published_rule_equals_its_literal_twin(seed, classes):
    problem, tables, p, rows, _ = world(seed, classes)
    cleaner = dataclasses.replace(Conformal.published(), warmup=1)
    kept, _ = visit(cleaner, problem, tables, p, rows, torch.ones_like(p, dtype=torch.bool))
    for epoch, run in itertools.product(range(1, EPOCHS), range(RUNS)):
        calibrating = cleaner.rows[run][cleaner.valid[run]]
        scores = [float(max(tables[epoch, run, v, problem.S[v]])) for v in calibrating]
        S = problem.S[rows[epoch, run]]
        assert torch.equal(kept[epoch, run], literal_published(p[epoch, run], S, scores, epoch, warmup=1))


@pytest.mark.parametrize("cleaner", [Conformal(warmup=0), Conformal.published(), Conformal.algorithm1()])
def test_calibrating_leaves_networks_and_random_state_alone(cleaner):
    X, S, _ = blobs(40, seed=0)
    cleaner = dataclasses.replace(cleaner, warmup=0)
    training = Training(Problem.of(X, S, seeds=(0, 1)), Proden(), cleaner, Recipe(epochs=3), "mlp")
    net, calibrate, modes = training.method.net, training.cleaner.calibrate, []

    def watch(predict, epoch):
        before = {key: value.clone() for key, value in net.state_dict().items()}
        state = torch.get_rng_state()
        net.register_forward_pre_hook(lambda module, inputs: modes.append(module.training))
        calibrate(predict, epoch)
        assert all(module.training for module in net.modules())
        assert torch.equal(torch.get_rng_state(), state)
        assert all(torch.equal(before[key], value) for key, value in net.state_dict().items())
        assert training.cleaner.limits[:, 1:-1].isfinite().all()

    training.cleaner.calibrate = watch
    for epoch in range(3):
        modes.clear()
        training.begin_epoch()
        assert modes
        assert not any(modes)  # evaluation mode
        assert training.epoch == epoch
        while training.done < training.steps:
            training.advance(capture=False)
        training.end_epoch()


def test_an_epoch_in_which_no_candidates_were_asked_for_is_no_error():
    """A method may ask at most once per step, so also never, say while it warms up."""
    problem, tables, p, rows, _ = world(0, 4)
    cleaner = Conformal(warmup=1)
    cleaner.setup(problem)
    for epoch in range(3):
        cleaner.calibrate(lambda chosen: torch.stack([t[c] for t, c in zip(tables[0], chosen, strict=True)]), epoch)
        assert not any(value.isnan().any() for value in cleaner.facts().values())
    batch = FakeBatch(problem, rows[0])
    assert cleaner.keep(p[0], batch.S, batch).any(-1).all()


# How many true labels are lost, by estimate, and when the permanent rule stops.


def literal_lost(p, S, kept):
    """Mean of Σ_{j∈S∖kept} q_j over rows, with q = norm_S(p^(1/T)) and T the first that makes S most probable."""
    p = [[max(float(p_j), torch.finfo(torch.float64).tiny) for p_j in row] for row in p]

    def power(row, labels, T):
        return sum(row[j] ** (1 / T) for j in labels)

    def fit(T):
        rows = zip(p, S, strict=True)
        return sum(math.log(power(row, labels, T) / power(row, range(len(row)), T)) for row, labels in rows)

    T = max([2 ** (k / 4) for k in range(17)], key=fit)
    rows = zip(p, S, kept, strict=True)
    return sum(power(row, labels - left, T) / power(row, labels, T) for row, labels, left in rows) / len(p)


def labels_of(S):
    return [{j for j, inside in enumerate(row) if inside} for row in S.tolist()]


def conforming(p, scores, level, finite, factor=1.0):
    """The labels of one row that are kept by their share of ranks."""
    found = [sum(s <= factor * float(p_j) for s in scores) for p_j in p]
    return {
        j for j, rank in enumerate(found) if ((1 + rank) / (len(scores) + 1) if finite else rank / len(scores)) > level
    }


def mean_mass(p, S):
    return sum(sum(float(p[i, j]) for j in range(p.shape[1]) if j not in S[i]) for i in range(len(p))) / len(p)


def watched(cleaner, *arguments):
    """Visit, and return what the cleaner recorded in every epoch."""
    calibrate, seen = cleaner.calibrate, []

    def watch(predict, epoch):
        calibrate(predict, epoch)
        state = {name: value.clone() for name, value in (cleaner.state() | cleaner.facts()).items()}
        seen.append(state)

    cleaner.calibrate = watch
    visit(cleaner, *arguments)
    return seen


def literal_permanent(problem, cleaner, tables, run):
    """One run of the permanent rule with a fixed level, or the mass outside, in plain loops; yields every epoch."""
    S, training = labels_of(problem.S), cleaner.problem.rows[run].tolist()
    calibrating = cleaner.rows[run][cleaner.valid[run]].tolist()
    sets, shadow, scores, lost, stopped = list(S), {v: S[v] for v in calibrating}, None, 0.0, False
    for epoch in range(EPOCHS):
        p = tables[epoch, run]
        if epoch >= max(cleaner.warmup, 1):
            off = mean_mass(p[training], [sets[i] for i in training])
            level = cleaner.alpha if cleaner.level == "fixed" else cleaner.alpha + off
            C = [conforming(row, scores, level, cleaner.finite) for row in p]
            left = {v: shadow[v] & C[v] or shadow[v] for v in calibrating}

            def estimate(kept, p=p):
                return literal_lost(p[calibrating], [S[v] for v in calibrating], [kept[v] for v in calibrating])

            stopped = stopped or (cleaner.stop < 1 and estimate(left) > cleaner.stop)
            if not stopped:
                shadow = left
                sets = [(sets[i] & C[i] or sets[i]) if i in training else sets[i] for i in range(len(S))]
            lost = estimate(shadow)
        scores = [max(float(p[v, j]) for j in sets[v]) for v in calibrating]
        yield lost, stopped, sets


@given(
    seed=st.integers(0, 2**20),
    classes=st.integers(2, 5),
    calibration=st.sampled_from(["reuse", "holdout"]),
    level=st.sampled_from(["off_candidate_mass", "fixed"]),
    alpha=st.sampled_from([0.0, 0.1, 0.3]),
    stop=st.sampled_from([0.02, 0.05, 0.1, 0.2, 1.0]),
    finite=st.booleans(),
)
@settings(max_examples=60)
def test_the_permanent_rule_equals_its_literal_twin(seed, classes, finite, **options):
    problem, *rest = world(seed, classes)
    cleaner = Conformal(rule="permanent", warmup=1, finite=finite, **options)
    seen = watched(cleaner, problem, *rest)
    for run in range(RUNS):
        for found, (lost, stopped, sets) in zip(seen, literal_permanent(problem, cleaner, rest[0], run), strict=True):
            assert float(found["estimated_lost"][run]) == pytest.approx(lost, abs=1e-12)
            assert bool(found["stopped"][run]) == stopped
            assert labels_of(found["pruned"][run]) == sets


@given(
    seed=st.integers(0, 2**20),
    classes=st.integers(2, 5),
    calibration=st.sampled_from(["reuse", "holdout"]),
    score=st.sampled_from(["best", "singletons"]),
    finite=st.booleans(),
)
@settings(max_examples=60)
def test_losses_of_the_revocable_rule_equal_their_literal_twin(seed, classes, score, finite, **options):
    problem, *rest = world(seed, classes)
    cleaner = Conformal(level="fixed", alpha=0.2, warmup=1, score=score, finite=finite, **options)
    try:
        seen = watched(cleaner, problem, *rest)
    except ValueError:  # a holdout without a single-candidate row
        assume(False)
    assert not seen[0]["estimated_lost"].any()  # warm-up
    for epoch, run in itertools.product(range(1, EPOCHS), range(RUNS)):
        p, S = rest[0][epoch, run], labels_of(problem.S)
        calibrating, audit = cleaner.rows[run][cleaner.valid[run]], cleaner.audit[run][cleaner.audit_valid[run]]
        scores = [max(float(p[v, j]) for j in S[v]) for v in calibrating.tolist()]
        kept = [S[v] & conforming(p[v], scores, 0.2, finite) or S[v] for v in audit.tolist()]
        expected = literal_lost(p[audit], [S[v] for v in audit.tolist()], kept)
        assert float(seen[epoch]["estimated_lost"][run]) == pytest.approx(expected, abs=1e-12)


@given(seed=st.integers(0, 2**20), classes=st.integers(2, 5))
@settings(max_examples=30)
def test_losses_of_the_published_rule_equal_their_literal_twin(seed, classes):
    """At the level that the audited rows' own mass outside their sets gives."""
    problem, *rest = world(seed, classes)
    cleaner = dataclasses.replace(Conformal.published(), warmup=1)
    seen = watched(cleaner, problem, *rest)
    for epoch, run in itertools.product(range(1, EPOCHS), range(RUNS)):
        p, S = rest[0][epoch, run], labels_of(problem.S)
        calibrating, audit = (
            cleaner.rows[run][cleaner.valid[run]],
            cleaner.audit[run][cleaner.audit_valid[run]].tolist(),
        )
        scores = [max(float(p[v, j]) for j in S[v]) for v in calibrating.tolist()]
        level, factor = 0.05 + mean_mass(p[audit], [S[v] for v in audit]), 1 - 0.5**epoch
        kept = [S[v] & conforming(p[v], scores, level, True, factor) or S[v] for v in audit]
        expected = literal_lost(p[audit], [S[v] for v in audit], kept)
        assert float(seen[epoch]["estimated_lost"][run]) == pytest.approx(expected, abs=1e-12)


def certain(first, second, n=40):
    """Two runs on rows that all have the candidates 0 and 1 of 3, and two epochs of constant probabilities for each."""
    S = torch.tensor([[True, True, False]]).repeat(n, 1)
    problem = Problem(torch.zeros(n, 1, dtype=torch.float64), S, (torch.arange(n),) * 2, (0, 1))
    return problem, torch.tensor([first, second], dtype=torch.float64)[:, :, None].expand(2, 2, n, 3)


UNSURE, SURE = [0.70, 0.20, 0.10], [0.88, 0.02, 0.10]  # class 1 weighs 2/9 and 1/45


def prune_twice(cleaner, first, second):
    problem, tables = certain(first, second)
    cleaner.setup(problem)
    facts = []
    for epoch, table in enumerate([tables[0], tables[0], tables[1]]):  # the first only gives scores
        cleaner.calibrate(lambda rows, p=table: p if rows is None else p[:, : rows.shape[1]], epoch)
        facts.append({name: value.tolist() for name, value in cleaner.facts().items()})
    return facts


@pytest.mark.parametrize("calibration", ["reuse", "holdout"])
def test_a_run_stops_for_good_and_alone(calibration):
    cleaner = Conformal(rule="permanent", level="fixed", calibration=calibration, warmup=1, stop=0.2)
    facts = prune_twice(cleaner, [UNSURE, SURE], [SURE, SURE])
    assert cleaner.stopped.tolist() == [True, False]
    members = cleaner.problem.training_mask
    assert cleaner.pruned[0].sum(-1).unique().tolist() == [2]  # although removing would cost little by now
    assert cleaner.pruned[1][members[1]].sum(-1).unique().tolist() == [1]
    assert facts[1]["threshold"] == facts[2]["threshold"] == pytest.approx([0, 0.88])
    assert facts[0]["estimated_lost"] == [0, 0]
    assert facts[1]["estimated_lost"] == facts[2]["estimated_lost"] == pytest.approx([0, 1 / 45])


def test_a_run_does_not_stop_below_the_number():
    cleaner = Conformal(rule="permanent", level="fixed", warmup=1, stop=0.23)
    facts = prune_twice(cleaner, [UNSURE, SURE], [SURE, UNSURE])
    assert not cleaner.stopped.any()
    assert (cleaner.pruned.sum(-1) == 1).all()
    assert facts[1]["estimated_lost"] == pytest.approx([2 / 9, 1 / 45])
    assert facts[2]["estimated_lost"] == pytest.approx([1 / 45, 2 / 9])  # later networks see it differently


def test_a_later_network_may_find_that_too_much_is_gone():
    """Then nothing more is removed; what is gone stays gone."""
    cleaner = Conformal(rule="permanent", level="fixed", warmup=1, stop=0.1)
    facts = prune_twice(cleaner, [SURE, SURE], [UNSURE, SURE])
    assert cleaner.stopped.tolist() == [True, False]
    assert facts[2]["estimated_lost"] == pytest.approx([2 / 9, 1 / 45])


@given(seed=st.integers(0, 2**20), classes=st.integers(2, 5), stop=st.sampled_from([0.02, 0.05, 0.1]))
@settings(max_examples=40)
def test_no_removal_lifts_the_estimate_above_the_number(seed, classes, stop):
    seen = watched(Conformal(rule="permanent", calibration="holdout", warmup=1, stop=stop), *world(seed, classes))
    for old, new in itertools.pairwise(seen):
        removed = (old["pruned"] & ~new["pruned"]).any(-1).any(-1)
        assert (new["estimated_lost"][removed] <= stop).all()
        assert not (old["stopped"] & (removed | ~new["stopped"])).any()


def test_algorithm1_never_stops():
    """In worlds where a number would have stopped it, and where nearly everything is lost."""
    stopped = 0
    for seed in range(10):
        never = dataclasses.replace(Conformal.algorithm1(), warmup=1)
        seen = watched(never, *world(seed, 4))
        assert not seen[-1]["stopped"].any()
        stopped += int(watched(dataclasses.replace(never, stop=0.05), *world(seed, 4))[-1]["stopped"].any())
    assert stopped > 5
    assert Conformal.algorithm1() == Conformal(rule="permanent", calibration="holdout", stop=1.0)


@pytest.mark.parametrize("cleaner", [Conformal(), Conformal.published(), Conformal(calibration="holdout", slack=0.1)])
def test_accounting_changes_nothing_of_the_revocable_rule(cleaner, monkeypatch):
    X, S, _ = blobs(60, seed=0)

    def results(**changes):
        training = Training(
            Problem.of(X, S, seeds=(0, 1)),
            Proden(),
            dataclasses.replace(cleaner, warmup=1, **changes),
            Recipe(epochs=4),
            "mlp",
        )
        train(training)
        return {name: value.clone() for name, value in training.tensors().items() if name != "cleaner.lost"}

    found = results()
    assert equal(found, results(stop=0.001))
    monkeypatch.setattr(Conformal, "_account", lambda self, p: None)
    assert equal(found, results())


@pytest.mark.parametrize("calibration", ["reuse", "holdout"])
def test_losses_are_looked_for_in_random_rows(calibration):
    """Rows with a single candidate can calibrate, but lose nothing."""
    X, S, _ = blobs(300, seed=0, flip=0.2)
    problem = Problem.of(X, S, seeds=(0, 1))
    best, single = (Conformal(score=score, calibration=calibration) for score in ("best", "singletons"))
    for cleaner in (best, single):
        cleaner.setup(problem)
    assert torch.equal(best.audit, best.rows)
    assert torch.equal(single.audit, best.audit)
    assert (problem.S[single.rows].sum(-1)[single.valid] == 1).all()
    assert (problem.S[single.audit].sum(-1) > 1).any()


@pytest.mark.parametrize(
    "cleaner",
    [
        Conformal(),
        Conformal.published(),
        Conformal.algorithm1(),
        Conformal(rule="permanent"),
        Conformal(score="singletons"),
    ],
)
def test_calibrating_reads_nothing_back_and_moves_nothing(cleaner):
    X, S, _ = blobs(60, seed=0)
    problem = Problem.of(X, S, seeds=(0, 1))
    training = Training(problem, Proden(), dataclasses.replace(cleaner, warmup=1), Recipe(epochs=3), "linear")
    places = {name: value.data_ptr() for name, value in training.cleaner.state().items()}
    for _ in range(3):
        training.batch.shuffle(training.epoch)
        with torch.no_grad(), Capturable():
            training.cleaner.calibrate(lambda rows: training.sweep(training.method.predict, rows), training.epoch)
        training.begun = True
        while training.done < training.steps:
            training.advance(capture=False)
        training.end_epoch()
    assert {name: value.data_ptr() for name, value in training.cleaner.state().items()} == places


@pytest.mark.parametrize("calibration", ["reuse", "holdout"])
def test_resuming_a_run_that_stops(calibration, tmp_path):
    """Saved after every epoch, the result is the same to the bit, whether or not runs had stopped by then."""
    X, S, _ = blobs(60, seed=0, flip=0.6)

    def new():
        cleaner = Conformal(rule="permanent", level="fixed", calibration=calibration, warmup=2, stop=0.2)
        return Training(Problem.of(X, S, seeds=(0, 1)), Proden(), cleaner, Recipe(epochs=8), "linear")

    whole = new()
    train(whole)
    assert whole.cleaner.stopped.any()
    assert whole.recorded()["share_changed"].any()
    for epoch in range(1, 8):
        first, second = new(), new()
        train(first, until=epoch)
        first.save(tmp_path / str(epoch), {})
        second.resume(tmp_path / str(epoch), {})
        train(second)
        assert equal(second.tensors(), whole.tensors())
        assert equal(second.recorded(), whole.recorded())


def test_experiments_record_the_estimate_beside_the_loss():
    """And a setting that changes nothing leaves the names of older results as they were."""
    X, S, y = blobs(60, seed=0)
    dataset = Dataset("blobs", X, S, y, tuple("abcd"))
    own = {"permanent": Conformal(rule="permanent"), "permanent-1": Conformal(rule="permanent", stop=1.0)}
    methods = [f"{name}+proden" for name in ("conf", "conformal", "algorithm1", "permanent-1", "permanent")]
    spec = Spec(datasets=("blobs",), methods=(*methods, "random+proden"), own=own)
    *older, newer, control = Run.all_of(spec, dataset, "blobs", Path("."))
    assert all("stop" not in run.config["cleaner"] for run in older)
    assert newer.config["cleaner"]["stop"] == 0.05
    assert "stop" not in control.config["cleaner"]["like"]
    assert control.config["cleaner"]["like"] == older[1].config["cleaner"]


def test_a_run_of_an_experiment_has_the_last_estimate(tmp_path):
    X, S, y = blobs(60, seed=0)
    dataset = Dataset("blobs", X, S, y, tuple("abcd"))
    methods, recipe = ("proden", "conformal+proden"), Recipe("short", epochs=14, batch_size=16)
    spec = Spec(datasets=("blobs",), methods=methods, seeds=(0, 1), recipe=recipe)
    plain, cleaned = Run.all_of(spec, dataset, "blobs", tmp_path)
    found = {}
    for run in (plain, cleaned):
        execute(run, spec, dataset, device="cpu", progress=False)
        found[run.method] = json.loads((run.folder / "summary.json").read_text())["metrics"]
    assert "estimated_lost" not in found["proden"]
    estimate = np.array(found["conformal+proden"]["estimated_lost"])
    assert estimate.shape == np.shape(found["conformal+proden"]["pruning_error"]) == (2, 1)
    assert ((estimate > 0) & (estimate < 1)).all()


# Which rows calibrate, and which train.


def calibration(cleaner, n, classes, singles, seed=0):
    """Return the calibration rows, the training rows and the single-candidate rows of one run."""
    generator = np.random.default_rng(seed)
    S = np.zeros((n, classes), bool)
    S[np.arange(n), generator.integers(0, classes, n)] = True
    several = np.sort(generator.permutation(n)[singles:])
    S[several, (S[several].argmax(1) + 1) % classes] = True
    problem = Problem.of(np.zeros((n, 1)), S, seeds=[seed])
    cleaner = copy.copy(cleaner)
    trained = cleaner.setup(problem)
    return set(cleaner.rows[0].tolist()), set(trained.rows[0].tolist()), set(range(n)) - set(several.tolist())


@pytest.mark.parametrize(
    ("n", "classes", "singles", "m", "uses_singles", "holds_out"),
    [
        (1000, 4, 600, 200, True, False),
        (1000, 4, 200, 200, True, False),
        (1000, 4, 199, 200, False, False),
        (300, 3, 100, 100, True, False),
        (300, 3, 99, 100, False, False),
        (150, 3, 75, 75, True, False),  # at most half of the rows
        (150, 3, 74, 75, False, False),
        (1999, 2, 1000, 399, True, False),
        (2000, 2, 1000, 400, True, True),
        (2000, 2, 399, 400, False, True),
    ],
)
def test_the_published_choice_of_calibration_rows(n, classes, singles, m, uses_singles, holds_out):
    calibrating, training, single = calibration(Conformal.published(), n, classes, singles)
    other, other_training, _ = calibration(Conformal.published(), n, classes, singles, seed=1)
    assert len(single) == singles
    if uses_singles:
        assert calibrating == single
    else:
        assert len(calibrating) == m
        assert calibrating != other
        assert not calibrating <= single
    if holds_out:
        assert len(training) == n - m
        assert training != other_training
        # The rows that never train are random ones, even where calibration uses the single-candidate rows.
        assert bool(calibrating & training) == uses_singles
    else:
        assert training == set(range(n))


@pytest.mark.parametrize("score", ["best", "worst", "mean"])
def test_reuse_and_holdout(score):
    calibrating, training, _ = calibration(Conformal(score=score), 1000, 4, 300)
    assert len(calibrating) == 200
    assert training == set(range(1000))
    held, training, _ = calibration(Conformal(score=score, calibration="holdout"), 1000, 4, 300)
    assert held == calibrating
    assert training == set(range(1000)) - held
    assert len(calibration(Conformal(fraction=0.5), 1000, 4, 300)[0]) == 500
    assert len(calibration(Conformal(fraction=0.01), 1000, 4, 300)[0]) == 100


def test_single_candidate_scores():
    calibrating, training, single = calibration(Conformal(score="singletons"), 1000, 4, 300)
    assert calibrating == single
    assert training == set(range(1000))
    held, training, single = calibration(Conformal(score="singletons", calibration="holdout"), 1000, 4, 300)
    assert held < single
    assert len(training) == 800
    assert not held & training
    with pytest.raises(ValueError, match="no calibration row has a single candidate"):
        calibration(Conformal(score="singletons"), 1000, 4, 0)


def test_a_run_calibrates_on_its_own_rows_alone():
    X, S, _ = blobs(300, seed=0)
    rows = [np.arange(220), np.arange(50, 300)]
    problem = Problem.of(X, S, rows=rows, seeds=(0, 1))
    cleaner = Conformal(calibration="holdout", fraction=0.45)
    trained = cleaner.setup(problem)
    assert cleaner.counts.tolist() == [100, 112]
    for run, own in enumerate(rows):
        calibrating = set(cleaner.rows[run][cleaner.valid[run]].tolist())
        assert len(calibrating) == cleaner.counts[run]
        assert calibrating | set(trained.rows[run].tolist()) == set(own.tolist())
        assert not calibrating & set(trained.rows[run].tolist())


@pytest.mark.parametrize("cleaner", [Conformal.algorithm1(), Conformal(calibration="holdout")])
def test_held_out_rows_never_train(cleaner):
    X, S, _ = blobs(60, seed=0)
    problem = Problem.of(X, S, seeds=(0, 1))
    training = Training(problem, Proden(), dataclasses.replace(cleaner, warmup=1), Recipe(epochs=4), "linear")
    visited = [set(), set()]
    while training.epoch < 4:
        training.begin_epoch()
        while training.done < training.steps:
            training.advance(capture=False)
            for run in range(2):
                visited[run] |= set(training.batch.rows[run].tolist())
        training.end_epoch()
    for run in range(2):
        held = set(training.cleaner.rows[run].tolist())
        assert len(held) == 30
        assert visited[run] == set(range(60)) - held
        rows = sorted(held)
        assert torch.equal(training.batch.kept[run, rows], problem.S[rows])
    assert training.recorded()["share_changed"].max() > 0


# Options and warnings.


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"rule": "forever"}, "rule='forever' is unknown; use one of revocable, permanent"),
        ({"level": "none"}, "level='none' is unknown; use one of off_candidate_mass, fixed, remark"),
        ({"score": "max"}, "score='max' is unknown; use one of best, worst, mean, singletons"),
        ({"calibration": "none"}, "calibration='none' is unknown; use one of reuse, holdout, auto"),
        ({"alpha": 1.0}, "alpha is 1.0"),
        ({"alpha": -0.1}, "alpha is -0.1"),
        ({"alpha": math.nan}, "alpha is nan"),
        ({"fraction": 0.0}, "fraction is 0.0"),
        ({"fraction": 1.0}, "fraction is 1.0"),
        ({"per_batch": True, "rule": "permanent"}, "per_batch needs rule='revocable'"),
        ({"per_batch": True, "level": "remark"}, "per_batch needs rule='revocable'"),
        ({"delta": 0.0}, "delta"),
        ({"delta": 2.5}, "delta"),
        ({"stop": 0.0}, "stop is 0.0; give a share of lost labels above 0, or 1 to never stop"),
        ({"stop": 1.1}, "stop is 1.1"),
        ({"stop": math.nan}, "stop is nan"),
        ({"stop": True}, "stop is True"),
        ({"stop": False}, "stop is False"),
    ],
)
def test_options_of_conformal_are_checked(options, message):
    with pytest.raises(ValueError, match=message):
        Conformal(**options)


@pytest.mark.parametrize("options", [{"k": 0}, {"tau": -0.1}, {"tau": 1.5}, {"tau": math.nan}])
def test_options_of_clsp_are_checked(options):
    with pytest.raises(ValueError, match=next(iter(options))):
        Clsp(**options).setup(Problem.of(*blobs(20, seed=0)[:2]))


def test_a_remark_that_can_never_prune_warns():
    remark = Conformal(level="remark")
    with pytest.warns(UserWarning, match="with 100 calibration rows the Remark's level is never positive"):
        calibration(remark, 400, 4, 100)
    with pytest.warns(UserWarning, match="never positive"):
        calibration(dataclasses.replace(remark, dkw=False, alpha=0.0), 400, 4, 100)
    for silent in ({"dkw": False}, {"alpha": 0.15}, {"delta": 0.9}):
        calibration(dataclasses.replace(remark, **silent), 400, 4, 100)  # warnings are errors


def test_too_few_calibration_rows_for_a_fixed_level_warn():
    fixed = Conformal(level="fixed")
    with pytest.warns(UserWarning, match="19 calibration rows are too few for alpha = 0.05"):
        calibration(fixed, 38, 2, 10)
    with pytest.warns(UserWarning, match="100 calibration rows are too few for alpha = 0.005"):
        calibration(dataclasses.replace(fixed, alpha=0.005), 400, 4, 100)
    calibration(fixed, 40, 2, 10)
    calibration(dataclasses.replace(fixed, alpha=0.01), 400, 4, 100)


def test_the_shortest_run_decides_about_warnings():
    X, S, _ = blobs(300, seed=0)
    problem = Problem.of(X, S, rows=[np.arange(300), np.arange(20)], seeds=(0, 1))
    with pytest.warns(UserWarning, match="10 calibration rows are too few"):
        Conformal(level="fixed").setup(problem)


# CLSP.


def slow_prune(S, neighbours, tau):
    """Candidate label set pruning, word by word."""
    pruned = []
    for row, others in zip(S, neighbours, strict=True):
        votes = [sum(1 - S[v][j] for v in others) if row[j] else 0 for j in range(len(row))]
        g = math.ceil(tau * (sum(row) - 1))
        limit = sorted(votes, reverse=True)[g]
        pruned.append([bool(row[j]) and votes[j] <= limit for j in range(len(row))])
    return pruned


def neighbourhood(seed, classes, k):
    generator = np.random.default_rng(seed)
    S = random_sets(generator, N, classes)
    neighbours = [generator.permutation([v for v in range(N) if v != i])[:k] for i in range(N)]
    return S, torch.from_numpy(np.stack(neighbours))


neighbourhoods = {"seed": st.integers(0, 2**20), "classes": st.integers(2, 12), "k": st.integers(1, 9)}
strengths = st.integers(0, 20).map(lambda twentieths: Fraction(twentieths, 20))


@given(**neighbourhoods, tau=strengths)
@settings(max_examples=80)
def test_clsp_equals_its_literal_twin(seed, classes, k, tau):
    S, neighbours = neighbourhood(seed, classes, k)
    pruned = Clsp(tau=float(tau)).prune(S, neighbours)
    assert pruned.tolist() == slow_prune(S.int().tolist(), neighbours.tolist(), tau)
    removed = (S & ~pruned).sum(-1)
    assert not (pruned & ~S).any()
    assert pruned.any(-1).all()
    assert all(int(gone) <= math.ceil(tau * (int(size) - 1)) for gone, size in zip(removed, S.sum(-1), strict=True))


@given(**neighbourhoods, tau=strengths)
@settings(max_examples=40)
def test_clsp_commutes_with_permutations(seed, classes, k, tau):
    S, neighbours = neighbourhood(seed, classes, k)
    generator, clsp = np.random.default_rng(seed), Clsp(tau=float(tau))
    pruned = clsp.prune(S, neighbours)
    columns = torch.from_numpy(generator.permutation(classes))
    assert torch.equal(clsp.prune(S[:, columns], neighbours), pruned[:, columns])
    order = torch.from_numpy(generator.permutation(N))
    assert torch.equal(clsp.prune(S[order], order.argsort()[neighbours[order]]), pruned[order])


def test_clsp_by_hand():
    S = torch.tensor([[1, 1, 1], [1, 0, 1], [1, 1, 0], [1, 0, 0]]).bool()
    votes = torch.tensor([[1, 2, 3]] * 4)  # of row 0: class 0 none, class 1 two, class 2 two
    assert Clsp(tau=0.5).prune(S, votes)[0].tolist() == [True, True, True]  # one may go, but two tie
    assert Clsp(tau=1.0).prune(S, votes)[0].tolist() == [True, False, False]
    assert Clsp(tau=1.0).prune(S, votes)[3].tolist() == [True, False, False]
    assert torch.equal(Clsp(tau=0.0).prune(S, votes), S)
    S[1, 1] = True  # class 1 now has one vote against it, class 2 two
    assert Clsp(tau=0.5).prune(S, votes)[0].tolist() == [True, True, False]


def test_clsp_looks_among_a_runs_own_rows_by_angle():
    X, S, _ = blobs(40, seed=0)
    rows = [np.arange(40), np.arange(8, 40)]
    problem = Problem.of(X, S, rows=rows, seeds=(0, 1))
    clsp = Clsp(k=4, tau=1.0)
    trained = clsp.setup(problem)
    assert torch.equal(problem.S, torch.from_numpy(S))
    assert trained.S.shape == (2, 40, 4)
    unit = F.normalize(problem.X, dim=-1)
    for run, own in enumerate(problem.rows):
        expected = clsp.prune(problem.S[own], nearest(unit[own], 4))
        assert torch.equal(trained.S[run, own], expected)
    assert torch.equal(trained.S[1, :8], problem.S[:8])  # rows it does not train on
    assert not torch.equal(trained.S[0], problem.S)
    longer = Problem.of(X * np.linspace(1, 9, 40)[:, None], S, rows=rows, seeds=(0, 1))
    assert torch.equal(clsp.setup(longer).S, trained.S)


def test_clsp_sees_a_scaling_that_was_given_but_no_standardisation():
    """The one says what the data are, the other is each run's own."""
    S = blobs(40, seed=0)[1]
    pixels = np.random.default_rng(0).integers(0, 256, (40, 5), dtype=np.uint8)
    numbers = pixels.astype(np.float32)
    clsp = Clsp(k=4, tau=1.0)
    raw = clsp.setup(Problem.of(numbers, S, seeds=(0, 1))).S
    centred = clsp.setup(Problem.of((numbers - 120) / 64, S, seeds=(0, 1))).S  # exact in float32
    assert not torch.equal(raw, centred)
    for stored in (pixels, numbers):
        given = Problem.of(stored, S, seeds=(0, 1), shift=120, scale=1 / 64)
        assert torch.equal(clsp.setup(given).S, centred)
        assert torch.equal(clsp.setup(Problem.of(stored, S, seeds=(0, 1))).S, raw)
        assert torch.equal(clsp.setup(Problem.of(stored, S, seeds=(0, 1), standardise=True)).S, raw)


def test_clsp_reads_given_features():
    X, S, _ = blobs(40, seed=0)
    problem = Problem.of(np.zeros_like(X), S)
    assert torch.equal(Clsp(features=X).setup(problem).S, Clsp().setup(Problem.of(X, S)).S)
    stored = Problem.of(np.zeros_like(X, dtype=np.uint8), S)
    assert torch.equal(Clsp(features=X).setup(stored).S, Clsp().setup(Problem.of(X, S)).S)
    with pytest.raises(ValueError, match="features has 39 rows but the problem has 40"):
        Clsp(features=X[:39]).setup(problem)


# The two controls.


@given(**worlds)
@settings(max_examples=60)
def test_random_removes_as_many_labels_per_row_as_the_cleaner_it_imitates(cleaner, seed, classes):
    problem, tables, p, rows, within = world(seed, classes)
    imitated = copy.copy(cleaner)
    kept, allowed = visit_or_assume(imitated, problem, tables, p, rows, within)
    noise = torch.rand(EPOCHS, RUNS, B, classes, generator=torch.Generator().manual_seed(seed))
    control = Random(cleaner)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        control.setup(problem)
    assert control.noise == classes
    for epoch in range(EPOCHS):

        def predict(chosen, table=tables[epoch]):
            return table if chosen is None else torch.stack([t[c] for t, c in zip(table, chosen, strict=True)])

        control.calibrate(predict, epoch)
        found = control.keep(p[epoch], allowed[epoch], FakeBatch(problem, rows[epoch], noise[epoch]))
        assert torch.equal(found.sum(-1), kept[epoch].sum(-1))
        assert not (found & ~allowed[epoch]).any()
    facts = imitated.facts()
    assert all(torch.equal(value, facts[name]) for name, value in control.facts().items())
    assert control.state().keys() == imitated.state().keys()


class Half(Cleaner):
    """Keeps the first two classes."""

    def keep(self, p, S, batch):
        return S & torch.tensor([True, True, False, False, False])


def test_random_chooses_evenly():
    n = 6000
    S = torch.ones(n, 5, dtype=torch.bool)
    S[:, 4] = False
    problem = Problem(torch.zeros(n, 1), S, (torch.arange(n),), (0,))
    noise = torch.rand(1, n, 5, generator=torch.Generator().manual_seed(0))
    control = Random(Half())
    control.setup(problem)
    kept = control.keep(torch.full((1, n, 5), 0.2), S[None], FakeBatch(problem, torch.arange(n)[None], noise))[0]
    pairs = (kept.long() * 2 ** torch.arange(5)).sum(-1).bincount(minlength=32)
    assert (pairs > 0).sum() == math.comb(4, 2)
    chances = pairs[pairs > 0] / n
    assert (chances - 1 / 6).abs().max() < 4 * math.sqrt(1 / 6 * 5 / 6 / n)


def test_random_imitates_a_cleaner_that_prunes_before_training():
    X, S, _ = blobs(40, seed=0)
    problem = Problem.of(X, S, rows=[np.arange(40), np.arange(8, 40)], seeds=(0, 1))
    clsp = Clsp(k=4, tau=1.0)
    expected, found = clsp.setup(problem).S, Random(clsp).setup(problem).S
    assert torch.equal(found.sum(-1), expected.sum(-1))
    assert not (found & ~problem.sets).any()
    assert not torch.equal(found, expected)
    assert torch.equal(Random(clsp).setup(problem).S, found)


class Noisy(Cleaner):
    """Keeps one random candidate; how much noise that takes is known at setup."""

    def setup(self, problem):
        self.noise = problem.num_classes
        return problem

    def keep(self, p, S, batch):
        best = batch.noise(S.shape[-1]).masked_fill(~S, -1).argmax(-1, keepdim=True)
        return torch.zeros_like(S).scatter_(-1, best, True)


def test_random_asks_for_the_noise_of_both():
    X, S, _ = blobs(40, seed=0)
    training = Training(Problem.of(X, S), Proden(), Random(Noisy()), Recipe(epochs=1), "linear")
    assert training.cleaner.noise == 8
    training.begin_epoch()
    training.advance(capture=False)
    assert (training.batch.take(training.batch.kept).sum(-1) == 1).all()


def test_oracle_keeps_the_true_label_wherever_it_is_allowed():
    generator = np.random.default_rng(0)
    S, y = random_sets(generator, N, 4), torch.from_numpy(generator.integers(0, 4, N))
    problem = Problem(torch.zeros(N, 1), S, (torch.arange(N), torch.arange(4, N)), (0, 1))
    oracle = Oracle(y.numpy())
    assert oracle.setup(problem) is problem
    rows = torch.from_numpy(np.stack([generator.permutation(N)[:B] for _ in range(2)]))
    batch = FakeBatch(problem, rows)
    kept = oracle.keep(torch.full((2, B, 4), 0.25), batch.S, batch)
    true = F.one_hot(y[rows], 4).bool()
    inside = (batch.S & true).any(-1)
    assert inside.any()
    assert not inside.all()
    assert torch.equal(kept[inside], true[inside])
    assert torch.equal(kept[~inside], batch.S[~inside])
    with pytest.raises(ValueError, match=r"y has shape \(3,\) but X has 24 rows"):
        Oracle([0, 1, 2]).setup(problem)


def test_the_identity_cleaner():
    problem = Problem.of(*blobs(10, seed=0)[:2])
    cleaner = Cleaner()
    assert cleaner.setup(problem) is problem
    assert cleaner.keep(None, problem.S, None) is problem.S
    assert cleaner.facts() == cleaner.state() == {}
