"""Batches and sweeps: the order law, reading and writing rows, noise, evaluation mode."""

import dataclasses

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from candidly.cleaning import Cleaner
from candidly.engine import batches
from candidly.engine.batches import Batch, Sweep, evaluating, scaled
from candidly.engine.building import builder
from candidly.engine.fitting import fit
from candidly.engine.footprint import _Live
from candidly.engine.nets import resnet
from candidly.engine.nets.augment import NOISE_PER_STRONG_VIEW, NOISE_PER_VIEW, VIEWS, flip_crop, strong_view
from candidly.engine.problem import Problem
from candidly.engine.recipe import Recipe
from candidly.methods import Proden


def make_images(runs, n, side):
    images = torch.zeros(n, 3, side, side, dtype=torch.uint8)
    return Problem.of(images, np.eye(2, dtype=bool)[np.arange(n) % 2], seeds=range(runs))


def make_problem(sizes, seeds=None, n=None, **keywords):
    """One run for each size, on different rows."""
    n = max(sizes) + 5 if n is None else n
    generator = np.random.default_rng(0)
    rows = [np.sort(generator.permutation(n)[:size]) for size in sizes]
    S = generator.random((n, 3)) < 0.5
    S[np.arange(n), np.arange(n) % 3] = True
    seeds = range(len(sizes)) if seeds is None else seeds
    return Problem.of(generator.normal(size=(n, 2)), S, rows=rows, seeds=list(seeds), **keywords)


def make_batch(problem, wished=16, noise=0, cleaner=None):
    """Return a batch as the engine makes it."""
    sizes = [len(rows) for rows in problem.rows]
    size = Recipe(batch_size=wished).batch(sizes)
    return Batch(problem, cleaner or Cleaner(), -(-max(sizes) // size), size, noise)


def order_of(batch, epoch):
    """Return the rows (R, steps, size) that an epoch visits."""
    batch.shuffle(epoch)
    visited = []
    for _ in range(batch._order.shape[1]):
        batch.load()
        visited.append(batch.rows.clone())
        batch.tick += 1
    return torch.stack(visited, 1)


@given(sizes=st.lists(st.integers(2, 40), min_size=1, max_size=4), wished=st.integers(2, 20), epoch=st.integers(0, 300))
@settings(max_examples=60)
def test_the_order_law(sizes, wished, epoch):
    problem = make_problem(sizes)
    order = order_of(make_batch(problem, wished), epoch)
    runs, steps, size = order.shape
    assert (runs, size) == (len(sizes), min(wished, *sizes))  # full batches, equally many for all runs
    assert (steps - 1) * size < max(sizes) <= steps * size
    for rows, visited in zip(problem.rows, order, strict=True):
        assert set(visited.flatten().tolist()) == set(rows.tolist())  # each row at least once, no other row
        assert all(len(set(batch.tolist())) == size for batch in visited)  # no row twice in a batch
        counts = visited.flatten().bincount()[rows]
        assert counts.max() - counts.min() <= 1
        first = visited.flatten()[: len(rows)]  # a permutation, then the same rows again
        again = first[torch.arange(steps * size) % len(rows)]
        assert torch.equal(visited.flatten(), again)


def test_epochs_and_runs_differ_and_repeat():
    problem = make_problem([30, 30], n=30)
    batch = make_batch(problem, noise=2)
    first, noise = order_of(batch, 0), batch._noise.clone()
    second, later = order_of(batch, 1), batch._noise.clone()
    assert not torch.equal(first, second)
    assert not torch.equal(noise, later)
    assert not torch.equal(first[0], first[1])
    assert not torch.equal(noise[0], noise[1])
    assert torch.equal(order_of(batch, 0), first)  # it depends on the epoch, not on what came before
    assert torch.equal(batch._noise, noise)


def test_all_orders_occur():
    problem = make_problem([3], n=3)
    batch = make_batch(problem, 3)
    seen = {tuple(order_of(batch, epoch).flatten().tolist()) for epoch in range(60)}
    assert len(seen) == 6


def test_a_runs_order_does_not_depend_on_other_runs():
    """Nor on how many batches the others need."""
    three = make_problem([20, 40, 25], seeds=[7, 8, 9])
    alone = dataclasses.replace(three, rows=three.rows[:1], seeds=(7,))
    beside, own = make_batch(three, 10, noise=1), make_batch(alone, 10, noise=1)
    order, single = order_of(beside, 4), order_of(own, 4)
    assert order.shape[1] == 4
    assert single.shape[1] == 2
    assert torch.equal(order[0, :2], single[0])
    assert torch.equal(order[0, 2:], single[0])  # started over


def test_order_and_noise_do_not_touch_the_global_generator():
    batch = make_batch(make_problem([10, 12]), noise=3)
    state = torch.get_rng_state()
    batch.shuffle(0)
    assert torch.equal(torch.get_rng_state(), state)
    torch.rand(3)
    before = batch._order.clone()
    batch.shuffle(0)
    assert torch.equal(batch._order, before)


@given(seed=st.integers(0, 2**16), shape=st.sampled_from([(), (3,), (2, 4)]))
@settings(max_examples=25)
def test_put_then_take_returns_the_value_and_leaves_other_rows(seed, shape):
    problem = make_problem([9, 14, 11])
    batch = make_batch(problem, 4)
    batch.shuffle(seed)
    batch.tick += seed % batch._order.shape[1]
    batch.load()
    generator = torch.Generator().manual_seed(seed)
    state = torch.randn(3, len(problem.X), *shape, generator=generator)
    value = torch.randn(3, 4, *shape, generator=generator)
    expected, address = state.clone(), state.data_ptr()
    for run in range(3):
        for place, row in enumerate(batch.rows[run].tolist()):
            assert torch.equal(batch.take(state)[run, place], state[run, row])
            expected[run, row] = value[run, place]
    batch.put(state, value)
    assert torch.equal(batch.take(state), value)
    assert torch.equal(state, expected)
    assert state.data_ptr() == address


@pytest.mark.parametrize("per_run", [False, True])
def test_a_batch_holds_its_rows_features_and_sets(per_run):
    problem = make_problem([9, 14], standardise=True)
    if per_run:
        sets = torch.stack([problem.S, torch.ones_like(problem.S)])
        problem = dataclasses.replace(problem, S=sets)
    batch = make_batch(problem, 5)
    batch.shuffle(0)
    batch.load()
    for run in range(2):
        rows = batch.rows[run]
        x = (problem.X[rows] - problem.shift[run]) * problem.scale[run]
        torch.testing.assert_close(batch.x[run], x)
        assert torch.equal(batch.S[run], problem.sets[run, rows])
        assert torch.equal(batch.inputs(batch.rows.flip(1))[run], batch.x[run].flip(0))


def test_more_noise_than_declared_is_refused():
    batch = make_batch(make_problem([10, 12]), noise=3)
    batch.shuffle(0)
    batch.load()
    assert batch.noise(3).shape[-1] == 3
    with pytest.raises(ValueError, match="drew 4 uniforms per row, but only 3 are declared; raise the attribute"):
        batch.noise(1)


def test_noise_is_uniform_and_fresh():
    batch = make_batch(make_problem([40, 33]), 8, noise=7)
    epochs = []
    for epoch in range(30):
        batch.shuffle(epoch)
        steps = []
        for _ in range(5):
            batch.load()
            steps.append(torch.cat([batch.noise(3), batch.noise(4)], -1))
            batch.tick += 1
        epochs.append(torch.stack(steps, 1))
    noise = torch.stack(epochs)
    assert noise.shape == (30, 2, 5, 8, 7)
    assert noise.min() >= 0
    assert noise.max() < 1
    assert noise.unique().numel() > 0.99 * noise.numel()  # no draw is handed out twice
    bins = noise.flatten().mul(10).long().bincount(minlength=10) / noise.numel()
    assert (bins - 0.1).abs().max() < 4 * (0.09 / noise.numel()) ** 0.5


def test_loading_again_gives_the_same_noise():
    batch = make_batch(make_problem([20]), 8, noise=2)
    batch.shuffle(0)
    batch.load()
    first = batch.noise(2).clone()
    batch.load()
    assert torch.equal(batch.noise(2), first)


class Second(Cleaner):
    """Keeps the last candidate."""

    def keep(self, p, S, batch):
        last = S.shape[-1] - 1 - S.flip(-1).byte().argmax(-1, keepdim=True)
        return torch.zeros_like(S).scatter_(-1, last, True)


def test_candidates_are_the_cleaners_within_what_the_method_allows():
    problem = make_problem([9, 14])
    batch = make_batch(problem, 5, cleaner=Second())
    batch.shuffle(0)
    batch.load()
    p = torch.rand(2, 5, 3, generator=torch.Generator().manual_seed(0)).softmax(-1)
    kept = batch.candidates(p)
    assert torch.equal(kept, Second().keep(p, batch.S, batch))
    assert torch.equal(batch.take(batch.kept), kept)
    assert not batch.guess.any()  # what the method guesses is only remembered where true labels are known
    within = batch.S & torch.tensor([True, True, False])
    within = torch.where(within.any(-1, keepdim=True), within, batch.S)
    assert torch.equal(batch.candidates(p, within), Second().keep(p, within, batch))
    others = torch.ones(2, len(problem.X), dtype=torch.bool).scatter_(1, batch.rows, False)
    assert torch.equal(batch.kept[others], problem.sets[others])


def sweeping(standardise=True):
    problem = make_problem([9, 14], standardise=standardise, dtype=torch.float64)
    method = Proden()
    method.setup(problem, builder(problem, "mlp"))
    for _ in range(3):  # running statistics that are not the initial ones
        method.net(scaled(problem.X.expand(2, -1, -1), problem) + 0.3)
    return problem, method


@pytest.mark.parametrize("numbers", [1, 20, 2**24])
def test_a_sweep_equals_evaluating_row_by_row(numbers, monkeypatch):
    monkeypatch.setattr(batches, "_BLOCK_NUMBERS", {"cpu": numbers})
    monkeypatch.setattr(batches, "_LAYER_WIDTH", 1)
    problem, method = sweeping()
    found = Sweep(problem, method)(method.predict)
    chosen = torch.tensor([[0, 5, 3, 3], [7, 7, 1, 2]])
    some = Sweep(problem, method)(method.predict, chosen)
    assert found.shape == (2, len(problem.X), 3)
    method.net.eval()
    with torch.no_grad():
        for row in range(len(problem.X)):
            x = (problem.X[row].expand(2, 1, -1) - problem.shift) * problem.scale
            torch.testing.assert_close(found[:, row : row + 1], method.net(x).softmax(-1))
    for run in range(2):
        torch.testing.assert_close(some[run], found[run, chosen[run]])


@pytest.mark.parametrize(("runs", "side", "rows"), [(1, 32, 32), (40, 32, 32), (64, 32, 21), (1, 64, 8), (1, 512, 1)])
def test_a_block_of_images_is_small(runs, side, rows):
    """A convolution has many more numbers than an image has: 128 per pixel, and all runs have their inputs at once."""
    assert batches.block_size(make_images(runs, 2, side)) == rows


def test_a_sweep_over_images_takes_little_memory(monkeypatch):
    monkeypatch.setattr(resnet, "_WIDEST", 8)
    problem, method = make_images(1, 48, 32), Proden()
    method.setup(problem, builder(problem, "resnet9"))
    with _Live() as live:
        Sweep(problem, method)(method.predict)
    # At most three results of the largest layer are alive: of a convolution, its normalisation and its ReLU.
    assert 4 * batches._BLOCK_NUMBERS["cpu"] < live.peak <= 3 * 4 * batches._BLOCK_NUMBERS["cpu"]


def test_a_sweep_restores_training_mode_and_changes_nothing():
    problem, method = sweeping()
    before = {key: value.clone() for key, value in method.net.state_dict().items()}
    assert not Sweep(problem, method)(method.predict).requires_grad
    assert all(module.training for module in method.net.modules())
    assert all(torch.equal(before[key], value) for key, value in method.net.state_dict().items())


def test_training_mode_returns_after_an_error():
    problem, method = sweeping()
    modes = []

    def fail(x):
        modes.append(method.net.training)
        raise KeyError

    with pytest.raises(KeyError):
        Sweep(problem, method)(fail)
    assert modes == [False]
    assert all(module.training for module in method.net.modules())
    with evaluating(method):
        assert not any(module.training for module in method.net.modules())
    assert all(module.training for module in method.net.modules())


def test_sweep_noise_depends_on_seed_and_epoch_alone():
    problem, method = sweeping()
    sweep = Sweep(problem, method)
    first = sweep.noise()
    assert first.shape == (2, len(problem.X))
    assert first.min() >= 0
    assert first.max() < 1
    assert not torch.equal(first[0], first[1])
    assert torch.equal(sweep.noise(), first)
    sweep.epoch = 1
    assert not torch.equal(sweep.noise(), first)
    alone = dataclasses.replace(problem, rows=problem.rows[1:], seeds=problem.seeds[1:])
    assert torch.equal(Sweep(alone, method).noise()[0], first[1])


@pytest.mark.parametrize(("augment", "kind"), [(True, "weak"), ("cutout", "cutout"), ("strong", "strong")])
def test_augmented_images_are_views_of_the_rows_anew_in_every_epoch(augment, kind):
    view, drawn = VIEWS[kind]
    generator = np.random.default_rng(0)
    images = generator.integers(1, 256, size=(12, 3, 9, 7), dtype=np.uint8)
    problem = Problem.of(images, np.eye(2, dtype=bool)[np.arange(12) % 2], seeds=[0, 1], scale=1 / 255)
    batch = Batch(problem, Cleaner(), 3, 4, noise=2, augment=augment)
    seen = []
    for epoch in range(2):
        batch.shuffle(epoch)
        batch.load()
        u = batch._noise[:, 0].clone()  # of the first step
        assert torch.equal(batch.noise(2), u[..., drawn:])  # the method's own come after
        assert torch.equal(batch.x, view(batch.inputs(batch.rows), u[..., :drawn]))
        assert not torch.equal(batch.x, batch.inputs(batch.rows))
        seen.append(u)
    assert not torch.equal(*seen)


@pytest.mark.parametrize(
    ("augment", "kind"), [(False, None), (True, "weak"), ("cutout", "cutout"), ("strong", "strong")]
)
def test_views_are_of_plain_images_and_different(augment, kind):
    images = np.random.default_rng(0).integers(256, size=(16, 3, 8, 8), dtype=np.uint8)
    problem = Problem.of(images, np.eye(2, dtype=bool)[np.arange(16) % 2], seeds=[0, 1], scale=1 / 255)
    batch = Batch(problem, Cleaner(), 1, 16, noise=2, augment=augment, views=("weak", "strong", "weak"))
    batch.shuffle(0)
    batch.load()
    plain, u = batch.inputs(batch.rows), batch._noise[:, 0, :, VIEWS[kind][1] if kind else 0 :]
    views = batch.views()
    sizes = [NOISE_PER_VIEW, NOISE_PER_STRONG_VIEW, NOISE_PER_VIEW, 2]
    for view, make, drawn in zip(views, [flip_crop, strong_view, flip_crop], u.split(sizes, -1), strict=False):
        assert torch.equal(view, make(plain, drawn))
    assert not torch.equal(views[0], views[2])
    assert torch.equal(batch.noise(2), u[..., -2:])


def test_images_are_only_augmented_for_methods_that_read_them(monkeypatch):
    images = np.random.default_rng(0).integers(256, size=(16, 3, 8, 8), dtype=np.uint8)
    problem = Problem.of(images, np.eye(2, dtype=bool)[np.arange(16) % 2], scale=1 / 255)
    calls = []
    monkeypatch.setitem(VIEWS, "cutout", (lambda x, u: calls.append(u) or x, NOISE_PER_VIEW))
    batch = Batch(problem, Cleaner(), 1, 16, noise=0, augment="cutout", views=("weak",))
    batch.shuffle(0)
    batch.load()
    batch.views()
    assert calls == []
    assert batch.x is batch.x
    assert len(calls) == 1


def test_rows_that_are_not_images_are_their_only_view():
    batch = Batch(make_problem([5]), Cleaner(), 1, 5, 0, views=("weak", "strong"))
    batch.shuffle(0)
    batch.load()
    (view,) = batch.views()
    assert view is batch.x


def test_an_augmented_image_is_flipped_in_every_other_epoch():
    images = np.zeros((64, 1, 21, 21), dtype=np.uint8)
    images[:, :, :, 5] = 1  # a stripe left of the centre, which a shift moves by at most 4 pixels
    problem = Problem.of(images, np.eye(2, dtype=bool)[np.arange(64) % 2], seeds=[0, 1])
    batch = Batch(problem, Cleaner(), 2, 32, noise=0, augment=True)
    flipped = []
    for epoch in range(4):
        batch.shuffle(epoch)
        u = torch.zeros(2, 64)
        for run in range(2):
            u[run, batch._order[run].flatten()] = batch._noise[run, ..., 0].flatten()
        batch.load()
        place = batch.x[:, :, 0].amax(-2).argmax(-1)  # of the first step, (2, 32)
        assert torch.equal(place > 10, u.gather(1, batch.rows) < 0.5)
        flipped.append(u < 0.5)
    assert torch.equal(flipped[0], flipped[2])
    assert torch.equal(flipped[1], flipped[3])
    assert torch.equal(flipped[0], ~flipped[1])
    assert 16 < flipped[0][0].sum() < 48
    assert not torch.equal(*flipped[0])


@pytest.mark.parametrize("setting", [{"augment": True}, {"augment": "cutout"}, {"test_flips": True}])
def test_flipping_takes_images(setting):
    ((name, value),) = setting.items()
    with pytest.raises(ValueError, match=rf"rows have shape \(2,\), but {name}={value!r} flips .* another recipe"):
        fit(make_problem([5]), Proden(), None, Recipe(epochs=1, **setting), device="cpu")


def test_training_on_augmented_images_repeats_and_predicts_plain_ones():
    generator = np.random.default_rng(0)
    X, S = generator.normal(size=(24, 1, 8, 8)), np.eye(3, dtype=bool)[np.arange(24) % 3]
    problem = Problem.of(X, S)
    plain, first, again = (
        fit(problem, Proden(), None, Recipe(epochs=3, batch_size=8, augment=augment), device="cpu").predict(X)
        for augment in (False, True, True)
    )
    assert torch.equal(first, again)
    assert not torch.allclose(first, plain, atol=1e-3)


def test_predictions_of_an_image_and_its_mirror_image_are_averaged():
    generator = np.random.default_rng(0)
    X, S = generator.normal(size=(24, 1, 8, 8)), np.eye(3, dtype=bool)[np.arange(24) % 3]
    plain, flipped = (
        fit(Problem.of(X, S), Proden(), None, Recipe(epochs=2, batch_size=8, test_flips=flips), device="cpu")
        for flips in (False, True)
    )
    expected = (plain.predict(X) + plain.predict(X[..., ::-1].copy())) / 2
    torch.testing.assert_close(flipped.predict(X), expected)
    assert not torch.allclose(flipped.predict(X), plain.predict(X), atol=1e-3)
    torch.testing.assert_close(flipped.predict(X[..., ::-1].copy()), flipped.predict(X))
