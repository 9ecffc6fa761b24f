"""Methods on images: what they do with views, against their literal losses."""

from dataclasses import asdict

import numpy as np
import pytest
import torch

from candidly.cleaning import Cleaner
from candidly.engine import Problem, Recipe
from candidly.engine.nets.augment import NOISE_PER_MIX, NOISE_PER_VIEW, flip_crop
from candidly.engine.training import Training
from candidly.methods import Crosel, Pico, Plcr
from tests.oracles.crosel import mean_weights, probabilities_of_views, soft_loss_of_views
from tests.oracles.labels import candidate_loss, cross_entropy, log_softmax
from tests.oracles.pico import Pico as PicoTwin
from tests.oracles.plcr import loss_of_row
from tests.oracles.runs import Run, networks

pytestmark = pytest.mark.usefixtures("narrow_networks")

N, C, RUNS, EPOCHS = 12, 4, 2, 4


class Probable(Cleaner):
    """Keeps the candidates that are at least 0.8 times as probable as the most probable one."""

    def keep(self, p, S, batch):
        inside = torch.where(S, p, 0.0)
        return inside >= 0.8 * inside.amax(-1, keepdim=True)


def training_on_images(method, cleaner=None):
    random = np.random.default_rng(3)
    S = random.random((N, C)) < 0.6
    S[np.arange(N), np.arange(N) % C] = True
    problem = Problem.of(random.normal(size=(N, 3, 6, 6)), S, seeds=range(RUNS), dtype=torch.float64)
    training = Training(problem, method, cleaner or Cleaner(), Recipe(epochs=EPOCHS, batch_size=N), "mlp")
    training.begin_epoch()
    training.batch.load()
    return training


def assert_equal(found, expected):
    torch.testing.assert_close(found, torch.as_tensor(expected, dtype=torch.float64), rtol=0, atol=1e-8)


def test_plcr_averages_the_views_of_an_image():
    training = training_on_images(Plcr())
    method, batch = training.method, training.batch
    method.ramp.fill_(0.7)
    found = method.step(batch, "main")
    batch._drawn = 0
    views = batch.views()
    assert len(views) == 3
    z = method.net(torch.cat(views, 1)).unflatten(1, (3, N))
    for run in range(RUNS):
        losses = []
        for row in range(N):
            kept = frozenset(batch.S[run, row].nonzero().flatten().tolist())
            losses.append(loss_of_row([log_softmax(z[run, view, row]) for view in range(3)], kept, 0.7))
        assert_equal(found[run], torch.stack(losses).mean())


class PicoOnImages(PicoTwin):
    """PiCO's twin, which is given the views of each step."""

    def views(self, rows):
        return self.given


def test_pico_gives_the_weak_view_to_the_classifier_and_the_strong_one_to_the_encoder():
    """Three steps and what they leave behind; in between, the networks move apart as in training."""
    training = training_on_images(Pico(queue=30, momentum=0.9))
    method, batch = training.method, training.batch
    starts = [(Run.of(training.problem, run, EPOCHS, N), networks(method, run)) for run in range(RUNS)]
    twins = [PicoOnImages(*start, settings=asdict(method)) for start in starts]
    for epoch, phase in enumerate(("first", "main", "main")):
        batch.shuffle(epoch)
        batch.load()
        found = method.step(batch, phase)
        batch._drawn = 0
        weak, strong = (view.flatten(2) for view in batch.views())
        with torch.no_grad():
            for parameter in method.net.parameters():
                parameter.copy_(parameter.roll(1, -1))
            method.after_step(batch, phase)
        method.epoch_end(epoch, training.sweep)
        for run, twin in enumerate(twins):
            rows = batch.rows[run].tolist()
            twin.given = weak[run], strong[run]
            assert_equal(found[run], twin.step(rows, batch.rows, phase))
            twin.nets["net"] = networks(method, run)["net"]
            with torch.no_grad():
                twin.after_step(rows)
            twin.epoch_end(epoch)
    for run, twin in enumerate(twins):
        assert_equal(method.q[run], twin.q)
        assert_equal(method.prototypes[run], torch.stack(twin.prototypes))
        first = int(method.cursor) % twin.queued.maxlen  # the oldest
        assert_equal(method.queued[run].roll(-first, 0), torch.stack([key for key, _ in twin.queued]))
        assert method.labels[run].roll(-first).tolist() == [label for _, label in twin.queued]


def test_crosel_warms_up_on_a_view():
    training = training_on_images(Crosel(warmup=1))
    method, batch = training.method, training.batch
    found = method.step(batch, "warm-up")
    batch._drawn = 0
    view = batch.views()[0]
    for run in range(RUNS):
        kept = [frozenset(S.nonzero().flatten().tolist()) for S in batch.S[run]]
        losses = [candidate_loss(kept, net(view[run].flatten(1))) for net in networks(method, run).values()]
        assert_equal(found[run], sum(losses))


def test_crosel_mixes_two_views_and_selects_others():
    training = training_on_images(Crosel(warmup=0), Probable())
    method, batch = training.method, training.batch
    counts = (5, 7)  # how many rows are selected for each network
    method.count.copy_(torch.tensor(counts).view(1, 2, 1))
    method.pool.copy_(torch.stack([torch.arange(N), torch.arange(N).flip(0)], -1))
    method.labels[..., -1] = torch.arange(RUNS * N * 2).view(RUNS, N, 2) // 3 % C
    method.fraction.copy_(torch.tensor([0.25, 0.5]))
    found = method.step(batch, "main")
    batch._drawn = 0
    views = batch.views()
    mixing = batch.noise(2 * NOISE_PER_MIX).reshape(RUNS, 2 * N, NOISE_PER_MIX)
    own = batch.noise(2 * NOISE_PER_VIEW).split(NOISE_PER_VIEW, -1)
    for run in range(RUNS):
        nets = list(networks(method, run).values())
        rows = batch.rows[run]
        seen = [view[run] for view in views]
        p = [[mean_weights(both) for both in zip(*probabilities_of_views(net, seen), strict=True)] for net in nets]
        assert_equal(batch.take(method.stored)[run].exp(), [*zip(*p, strict=True)])
        kept = []
        for row, both in zip(rows.tolist(), zip(*p, strict=True), strict=True):
            mean = mean_weights(both)
            S = training.problem.sets[run, row].nonzero().flatten().tolist()
            kept.append(frozenset(j for j in S if mean[j] >= 0.8 * max(mean[k] for k in S)))
        expected = 0.0
        for k, net in enumerate(nets):
            soft = soft_loss_of_views(net, seen, kept, mixing[run])
            chosen = [method.pool[run, position % counts[k], k].item() for position in range(N)]
            one_hot = [[float(j == method.labels[run, row, 1 - k, -1]) for j in range(C)] for row in chosen]
            x = flip_crop(training.problem.X[chosen], own[k][run])
            expected += cross_entropy(one_hot, net(x.flatten(1))) + 2.0 * (1 - method.fraction[run]) * soft
        assert_equal(found[run], expected)
