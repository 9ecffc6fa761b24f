"""Methods on images: what they do with views, against their literal losses."""

import numpy as np
import torch

from candidly.cleaning import Cleaner
from candidly.engine import Problem, Recipe
from candidly.engine.nets.augment import NOISE_PER_VIEW, flip_crop
from candidly.engine.training import Training
from candidly.methods import Crosel, Pico, Plcr
from tests.oracles.labels import log_softmax
from tests.oracles.plcr import loss_of_row


def training_on_images(method):
    random = np.random.default_rng(3)
    S = random.random((12, 4)) < 0.4
    S[np.arange(12), np.arange(12) % 4] = True
    problem = Problem.of(random.normal(size=(12, 3, 6, 6)), S, seeds=(0, 1), dtype=torch.float64)
    training = Training(problem, method, Cleaner(), Recipe(epochs=4, batch_size=12), "mlp")
    training.begin_epoch()
    training.batch.load()
    return training


def test_plcr_averages_the_views_of_an_image():
    training = training_on_images(Plcr())
    method, batch = training.method, training.batch
    method.ramp.fill_(0.7)
    found = method.step(batch, "main")
    batch._drawn = 0
    views = batch.views()
    assert len(views) == 3
    z = method.net(torch.cat(views, 1)).unflatten(1, (3, 12))
    for run in range(2):
        losses = []
        for row in range(12):
            kept = frozenset(batch.S[run, row].nonzero().flatten().tolist())
            losses.append(loss_of_row([log_softmax(z[run, view, row]) for view in range(3)], kept, 0.7))
        torch.testing.assert_close(found[run], torch.stack(losses).mean())


def test_pico_gives_the_weak_view_to_the_classifier_and_the_strong_one_to_the_encoder(monkeypatch):
    training = training_on_images(Pico())
    method, batch = training.method, training.batch
    seen = {}
    both = method._both
    monkeypatch.setattr(method, "_both", lambda net, x: seen.update({id(net): x}) or both(net, x))
    method.step(batch, "first")
    batch._drawn = 0
    weak, strong = batch.views()
    assert torch.equal(seen[id(method.net)], weak)
    assert torch.equal(seen[id(method.encoder)], strong)
    assert torch.equal(method.queued[:, :12], both(method.encoder, strong)[1])


def test_crosel_selects_views_of_images(monkeypatch):
    training = training_on_images(Crosel(warmup=0))
    method, batch = training.method, training.batch
    method.count.fill_(12)
    method.pool.copy_(torch.arange(12).view(1, 12, 1))
    seen = []
    logits = method._logits
    monkeypatch.setattr(method, "_logits", lambda x: seen.append(x) or logits(x))
    method.step(batch, "main")
    u = batch._noise[:, 0, :, -2 * NOISE_PER_VIEW :]
    for network, own in enumerate(u.split(NOISE_PER_VIEW, -1)):
        plain = batch.inputs(torch.arange(12).expand(2, -1))
        assert torch.equal(seen[-1][:, network], flip_crop(plain, own))
