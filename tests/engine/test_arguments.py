"""What people get wrong in their first ten minutes with `fit`, and what it tells them."""

import re

import numpy as np
import pytest
import torch
from torch import nn

from candidly.cleaning import Conformal
from candidly.engine.contract import Cleaner
from candidly.engine.fitting import fit
from candidly.engine.problem import Problem
from candidly.engine.recipe import Recipe
from candidly.methods import Cc, Pico, Proden, Valen

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


class Odd(nn.Module):
    """A network whose result is passed through a function."""

    def __init__(self, change, width=FEATURES):
        super().__init__()
        self.head, self.change = nn.Linear(width, CLASSES), change

    def forward(self, x):
        return self.change(self.head(x))


SHARED = nn.Linear(FEATURES, CLASSES)


@pytest.mark.parametrize(
    ("net", "message"),
    [
        (lambda: None, r"returned None; it must return a new torch.nn.Module"),
        (lambda: nn.Linear, r"returned <class .*; it must return a new torch.nn.Module"),
        (
            lambda: Odd(lambda z: None),
            r"returns None instead of a tensor; rows of shape \(2, 3\) must become logits of",
        ),
        (lambda: Odd(lambda z: (z, z)), r"returns \(tensor.* instead of a tensor"),
        (lambda: Odd(lambda z: z[:1]), r"returns a tensor of shape \(1, 4\) and dtype torch.float32"),
        (lambda: Odd(lambda z: z[0]), r"returns a tensor of shape \(4,\)"),
        (lambda: Odd(lambda z: z.to(torch.complex64)), r"returns a tensor of shape \(2, 4\) and dtype torch.complex64"),
        (lambda: Odd(lambda z: z.long()), r"returns a tensor of shape \(2, 4\) and dtype torch.int64"),
        (
            lambda: Odd(lambda z: z, width=5),
            r"failed with RuntimeError \(mat1 and mat2 .*; rows of shape \(2, 3\) must",
        ),
        (lambda: Odd(lambda z: 1 / 0), r"failed with ZeroDivisionError"),
        (lambda: nn.Flatten(), "returned a Flatten without trainable parameters"),
        (lambda: nn.Sequential(nn.ReLU(inplace=True), nn.Linear(FEATURES, CLASSES)), "changes its input, the rows, in"),
    ],
)
def test_networks_that_cannot_be_used_are_named(net, message):
    with pytest.raises(ValueError, match=f"net=.*<lambda> {message}"):
        fit(problem(shift=0.5), Proden(), None, Recipe(epochs=1, batch_size=4), net=net, device="cpu")


class WithFeatures(nn.Module):
    """A network whose features are passed through a function."""

    def __init__(self, change):
        super().__init__()
        self.body, self.head, self.change = nn.Linear(FEATURES, 6), nn.Linear(6, CLASSES), change

    def features(self, x):
        return self.change(self.body(x))

    def forward(self, x):
        return self.head(self.body(x))


@pytest.mark.parametrize("method", [Pico, Valen])
@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda h: h[..., None, None], r"returns a tensor of shape \(2, 6, 1, 1\) and dtype torch.float32"),
        (lambda h: h[0], r"returns a tensor of shape \(6,\)"),
        (lambda h: h[:1], r"returns a tensor of shape \(1, 6\)"),
        (lambda h: h.double(), r"shape \(2, 6\) and dtype torch.float64; .* \(2, D\) and dtype torch.float32, such as"),
        (lambda h: h.long(), "and dtype torch.int64"),
        (lambda h: (h, h), r"returns \(tensor.* instead of a tensor"),
        (lambda h: None, "returns None instead of a tensor"),
        (lambda h: 1 / 0, "failed with ZeroDivisionError"),
    ],
)
def test_what_features_of_a_custom_network_are_is_checked(method, change, message):
    wanted = r"rows of shape \(2, 3\) must become one vector each, of shape \(2, D\)"
    with pytest.raises(ValueError, match=rf"^\.features\(x\) of net=.*<lambda> .*{message}") as found:
        train(method(), net=lambda: WithFeatures(change))
    found.match(wanted)
    assert train(net=lambda: WithFeatures(change)).runs == 1  # a method that does not use them does not ask for them


class Custom(Proden):
    """A method with one changed part."""

    def __init__(self, **changes):
        self.changes = changes

    def __getattribute__(self, name):
        change = object.__getattribute__(self, "__dict__").get("changes", {}).get(name)
        found = super().__getattribute__(name)
        return found if change is None else lambda *given: change(found(*given))


@pytest.mark.parametrize(
    ("part", "change", "message"),
    [
        ("step", lambda loss: None, "step of the method Custom returned None; return the loss of each run"),
        ("step", lambda loss: 1.0, "returned 1.0; return the loss of each run"),
        ("step", lambda loss: loss.detach(), r"returned a tensor of shape \(1,\) without a gradient"),
        ("step", lambda loss: loss[:, None], r"returned a tensor of shape \(1, 1\) with a gradient"),
        ("networks", lambda nets: None, "networks of the method Custom returned None"),
        ("networks", lambda nets: {}, r"returned \{\}; setup must store a network"),
        ("trains", lambda nets: None, "trains of the method Custom returned None; return a list"),
        ("trains", lambda nets: [], r"returned \[\]; return a list"),
        ("trains", lambda nets: [nn.Linear(1, 1)], "return a list of some of its networks"),
        ("phase", lambda phase: [phase], r"phase of the method Custom returned \['main'\]; return a text"),
        ("predict", lambda p: p[:, :1], r"predict of the method Custom returned a tensor of shape \(1, 1, 4\)"),
        ("predict", lambda p: None, "predict of the method Custom returned None"),
    ],
)
def test_what_a_custom_method_returns_is_checked(part, change, message):
    with pytest.raises(ValueError, match=message):
        train(Custom(**{part: change})).predict(problem().X)


@pytest.mark.parametrize("shape", [(FEATURES,), (3, 4, 4)])
@pytest.mark.parametrize("views", [("strng",), "strong", "", ("weak", None), ("weak", ["strong"]), None])
def test_views_that_do_not_exist_are_refused(views, shape):
    method = Proden()
    method.views = views
    data = Problem.of(torch.rand(ROWS, *shape), problem().S)
    message = f"views of the method Proden is {views!r}; it must be a tuple of some of weak, cutout, strong, such as"
    with pytest.raises(ValueError, match=re.escape(message)):
        fit(data, method, None, Recipe(epochs=1, batch_size=4), device="cpu")


class Keeping(Cleaner):
    def __init__(self, change):
        self.change = change

    def keep(self, p, S, batch):
        return self.change(S)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda S: None, "keep of the cleaner Keeping returned None; return a boolean tensor of shape"),
        (lambda S: S.float(), "returned torch.float32 of shape"),
        (
            lambda S: S[..., :2],
            r"returned torch.bool of shape \(1, 4, 2\); return a boolean tensor of shape \(1, 4, 4\)",
        ),
        (lambda S: S.numpy(), "keep of the cleaner Keeping returned array"),
        (lambda S: S & False, "keep of the cleaner Keeping returned no subset .*; return a non-empty subset of S"),
        (lambda S: S | True, r"returned no subset of the candidates, or an empty one, for row \d+ in run 0"),
    ],
)
def test_what_a_custom_cleaner_keeps_is_checked(change, message):
    with pytest.raises(ValueError, match=message):
        train(cleaner=Keeping(change))


@pytest.mark.parametrize(
    ("net", "message"),
    [
        (lambda width: nn.Linear(FEATURES, width), "cannot be called without arguments"),
        (nn.Linear, "net=Linear cannot be called without arguments"),
        (lambda: nn.Linear(FEATURES, CLASSES, device="meta"), "returned a network on the meta device"),
        (lambda: Odd(lambda z: z.double()), "dtype torch.float64; rows of .* and dtype torch.float32"),
        (lambda: Odd(lambda z: z.detach()), "returns logits without a gradient"),
    ],
)
def test_networks_that_cannot_learn_are_named(net, message):
    with pytest.raises(ValueError, match=message):
        train(net=net)


@pytest.mark.parametrize(("name", "value"), [("progress", "no"), ("progress", 1), ("stop", True), ("stop", "now")])
def test_other_arguments_are_checked(name, value):
    with pytest.raises(ValueError, match=f"^{name} is "):
        train(**{name: value})


def test_networks_that_share_parameters_are_refused():
    with pytest.raises(ValueError, match="returned networks that share parameters; return a new module in every call"):
        fit(problem(seeds=[0, 1]), Proden(), net=lambda: SHARED, device="cpu")


@pytest.mark.parametrize(
    ("name", "value"),
    [
        *(("problem", value) for value in (torch.rand(3, 2), [[0.0]], None, Problem)),
        *(("method", value) for value in (None, 3, Proden, "proden")),
        *(("cleaner", value) for value in (3, Conformal, "conformal", Proden())),
        *(("recipe", value) for value in (3, None, Recipe)),
        *(
            ("device", value)
            for value in (None, 3, "", "gpu", "mps", "xpu", "meta", "cuda:x", "CPU", torch.device("meta"))
        ),
        *(("graph", value) for value in (None, True, ["auto"])),
        *(("deterministic", value) for value in ("no", 1, None)),
        *(("every", value) for value in (None, "1", 1.5, True)),
        *(("patience", value) for value in ("1", 1.5, True, 0)),
        *(("held_out", value) for value in (3, "rows")),
    ],
)
def test_wrong_types_are_refused_by_name(name, value):
    given = {"problem": problem(), "method": Proden(), "recipe": Recipe(epochs=1), "device": "cpu"} | {name: value}
    with pytest.raises(ValueError, match=f"^{name} is "):
        fit(**given)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        *(({"seeds": value}, "seeds is ") for value in (5, "abc", None, 2.5, iter([1]))),
        *(({"seeds": [value]}, "one of seeds is ") for value in ("0", 1.5, None, True, -1)),
        (
            {"seeds": range(10**12)},
            "at least .* are needed on cpu for the candidates of 12 rows and 4 classes in each of",
        ),
        ({"rows": 3}, "rows is 3; it must be a list of row numbers for each run"),
        ({"rows": [["a", "b"]]}, "training rows have dtype"),
        ({"rows": [[[0], [1, 2]]]}, "one of rows is .*, which is not an array"),
        ({"standardise": "no"}, "standardise is 'no'; use True or False"),
        ({"dtype": "float32"}, "dtype is 'float32'; use torch.float32 or torch.float64"),
        ({"dtype": torch.float16}, "dtype is torch.float16; use torch.float32 or torch.float64"),
        ({"dtype": torch.bfloat16}, "dtype is torch.bfloat16; use torch.float32 or torch.float64"),
        ({"dtype": torch.int32}, "dtype is torch.int32"),
        ({"shift": "a"}, "shift has dtype"),
        ({"weights": [[1.0], [2.0, 3.0]]}, "weights is .*, which is not an array"),
    ],
)
def test_wrong_types_of_a_problem_are_refused_by_name(options, message):
    with pytest.raises(ValueError, match=message):
        problem(**options)


@pytest.mark.parametrize(
    ("X", "message"),
    [
        (torch.zeros(ROWS, 0), r"X has shape \(12, 0\), without features"),
        (torch.zeros(ROWS, 2, dtype=torch.complex64), "X is a tensor of dtype torch.complex64"),
        (torch.zeros(ROWS, 2).to_sparse(), "layout torch.sparse_coo"),
        (torch.zeros(ROWS, 2, device="meta"), "device meta"),
        (np.zeros((ROWS, 2), complex), "X has dtype complex128; pass numbers"),
        (np.ma.masked_equal(np.arange(2.0 * ROWS).reshape(ROWS, 2), 3), "X is a masked array with masked entries"),
        ([[1.0], [1.0, 2.0]], "X is .*, which is not an array; pass rows of equal length"),
        (np.full((ROWS, 1), 1e300), r"X has 1e\+300 in row 0, column 0, which is too large for torch.float32"),
    ],
)
def test_features_that_cannot_be_used_are_named(X, message):
    with pytest.raises(ValueError, match=message):
        Problem.of(X, problem().S)


@pytest.mark.parametrize("dtype", [">f8", "f2", "g", "u8", "i1", ">i2"])
def test_numbers_of_every_dtype_are_taken(dtype):
    X = np.arange(2 * ROWS).reshape(ROWS, 2).astype(dtype)
    assert Problem.of(X, problem().S).X.tolist() == X.astype(np.float32).tolist()


@pytest.mark.parametrize("context", [torch.no_grad, torch.inference_mode])
def test_training_without_gradients_around_it_is_the_same(context):
    with context():
        inside = train(cleaner=Conformal(warmup=0)).predict(problem().X)
    assert torch.equal(inside, train(cleaner=Conformal(warmup=0)).predict(problem().X))


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
