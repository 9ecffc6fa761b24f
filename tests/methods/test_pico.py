"""What PiCO's contrastive loss trains."""

import numpy as np
import torch
from torch import nn

from candidly.cleaning import Cleaner
from candidly.engine import Problem, Recipe
from candidly.engine.nets import resnet
from candidly.engine.training import Training
from candidly.methods import Pico

N, C = 8, 4


def training_of(net, *shape):
    X = np.random.default_rng(0).normal(size=(N, *shape))
    S = np.eye(C, dtype=bool)[np.arange(N) % C] | np.eye(C, dtype=bool)[np.arange(N) // 2]
    training = Training(Problem.of(X, S), Pico(), Cleaner(), Recipe(epochs=2, batch_size=N), net)
    training.begin_epoch()
    training.batch.load()
    return training


def contrastive_gradient(training, parameter):
    """Return the gradient of the loss of a step after the first epoch, without its cross-entropy."""
    method, batch = training.method, training.batch
    _, query = method._both(method.net, batch.x)
    _, key = method._both(method.encoder, batch.x)
    label = torch.arange(N).unsqueeze(0) % C
    return torch.autograd.grad(method._contrast(query, key.detach(), label).sum(), parameter)[0]


def test_the_embedding_of_resnet9_is_trained(monkeypatch):
    monkeypatch.setattr(resnet, "_WIDEST", 44)
    training = training_of("resnet9", 3, 32, 32)
    net = training.method.net.nets[0]
    for layer in (net.project, net.stem[0][0]):
        assert contrastive_gradient(training, layer.weight).any()
    before = net.project.weight.detach().clone()
    training.advance(capture=False)
    assert not torch.equal(net.project.weight, before)


class Own(nn.Module):
    """A user's network."""

    def __init__(self):
        super().__init__()
        self.body, self.head = nn.Sequential(nn.Linear(3, 6), nn.Tanh()), nn.Linear(6, C)

    def features(self, x):
        return self.body(x)

    def forward(self, x):
        return self.head(self.body(x))


def test_the_contrastive_loss_trains_the_body_of_a_custom_network():
    training = training_of(Own, 3)
    assert contrastive_gradient(training, training.method.net.nets[0].body[0].weight).any()
