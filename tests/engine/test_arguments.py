"""What people get wrong in their first ten minutes with `fit`, and what it tells them."""

import pytest
import torch
from torch import nn

from candidly.cleaning import Conformal
from candidly.engine.problem import Problem
from candidly.engine.recipe import Recipe
from candidly.engine.training import fit
from candidly.methods import Cc, Proden, Valen

ROWS, FEATURES, CLASSES = 12, 3, 4


def problem(**options):
    generator = torch.Generator().manual_seed(0)
    S = torch.rand(ROWS, CLASSES, generator=generator) < 0.5
    S[range(ROWS), torch.arange(ROWS) % CLASSES] = True
    return Problem.of(torch.rand(ROWS, FEATURES, generator=generator), S, **options)


def train(method=None, cleaner=None, **options):
    method = Proden() if method is None else method
    return fit(problem(), method, cleaner, Recipe(epochs=1, batch_size=4), device="cpu", **options)


class Beside(nn.Module):
    """A network whose features come from a layer that its logits do not use."""

    def __init__(self, trainable):
        super().__init__()
        self.head = nn.Linear(FEATURES, CLASSES)
        self.side = nn.Linear(FEATURES, 2).requires_grad_(trainable)

    def features(self, x):
        return self.side(x)

    def forward(self, x):
        return self.head(x)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"method": "proden"}, r"method is 'proden'; it must be an instance, such as candidly.methods.Proden\(\)"),
        ({"method": Proden}, "it must be an instance"),
        (
            {"cleaner": "conformal"},
            r"cleaner is 'conformal'; it must be an instance, such as candidly.Conformal",
        ),
        ({"cleaner": Conformal}, "it must be an instance"),
        ({"net": nn.Linear(FEATURES, CLASSES)}, "net is a module; pass a function that returns a new one"),
        ({"net": "cnn"}, "unknown network 'cnn'"),
        (
            {"net": lambda: nn.Linear(FEATURES, 3)},
            r"shape \(2, 3\) and .*; rows of .* must become logits of shape \(2, 4\)",
        ),
        ({"net": lambda: nn.Linear(FEATURES, 1)}, r"returns a tensor of shape \(2, 1\)"),
        (
            {"net": lambda: Beside(True)},
            r"does not depend on the network's parameter nets.0.side.weight; call",
        ),
        ({"graph": "yes"}, "graph is 'yes'; use one of auto, on, off"),
        ({"every": 0}, "every is 0; it must be an integer of at least 1"),
    ],
)
def test_a_wrong_argument_is_refused_with_advice(options, message):
    with pytest.raises(ValueError, match=message):
        train(**options)


def test_a_frozen_layer_may_lie_beside_the_head():
    model = train(Valen(warmup=1), net=lambda: Beside(False))
    assert model.predict(problem().X).isfinite().all()


def test_dropout_trains_with_a_warning():
    with pytest.warns(UserWarning, match="not reproducible to the bit"):
        model = train(Cc(), net=lambda: nn.Sequential(nn.Linear(FEATURES, CLASSES), nn.Dropout(0.5)))
    assert model.predict(problem().X).isfinite().all()


@pytest.mark.parametrize(
    ("X", "S", "options", "message"),
    [
        (
            [[0.0], [1.0]],
            [["a", "b"], ["a"]],
            {},
            r"S is not a boolean matrix; convert names with candidly.candidates.encode",
        ),
        (
            [[0.0], [1.0]],
            [[True, False]] * 2,
            {"seeds": 5},
            r"seeds is 5; it must be a list with one seed per run",
        ),
    ],
)
def test_a_wrong_problem_is_refused_with_advice(X, S, options, message):
    with pytest.raises(ValueError, match=message):
        Problem.of(X, S, **options)


def test_sparse_features_are_refused_with_advice():
    sparse = pytest.importorskip("scipy.sparse")
    with pytest.raises(ValueError, match=r"X is sparse; pass X.toarray\(\)"):
        Problem.of(sparse.eye(3).tocsr(), torch.eye(3, dtype=torch.bool))


def test_constant_features_are_not_blown_up():
    X = torch.full((1000, 2), 0.1)
    X[:, 1] = torch.linspace(0, 1, 1000)
    S = torch.eye(2, dtype=torch.bool).repeat(500, 1)
    found = Problem.of(X, S, standardise=True)
    assert found.scale[0, 0, 0] == 1
    assert found.scale[0, 0, 1] == pytest.approx(1 / X[:, 1].std(unbiased=False).item())


def test_prediction_refuses_what_training_refuses():
    model = train()
    X = problem().X.clone()
    X[3, 1] = torch.nan
    with pytest.raises(ValueError, match="X has nan in row 3, column 1"):
        model.predict(X)


def test_tensors_are_taken_as_they_are():
    X = torch.rand(ROWS, FEATURES, requires_grad=True)
    S = torch.ones(ROWS, CLASSES, dtype=torch.bool)
    S[0, 1:] = False
    found = Problem.of(X, S, y=torch.zeros(ROWS, dtype=torch.int64))
    assert torch.equal(found.X, X.detach())
    assert not found.X.requires_grad
    assert Problem.of(X.to(torch.bfloat16), S).X.dtype == torch.float32


def test_a_model_says_how_it_was_made(tmp_path):
    model = train(cleaner=Conformal.published())
    assert (model.recipe.epochs, model.recipe.name) == (1, "custom")
    assert (model.cleaner["name"], model.cleaner["alpha"]) == ("conformal", 0.05)
    assert model.problem.runs == 1
    model.save(tmp_path)
    assert type(model).load(tmp_path).cleaner == model.cleaner
