"""Models: prediction, saving, and the descriptions that checkpoints and saved models carry."""

import dataclasses
import json
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from candidly.candidates import encode
from candidly.cleaning import Clsp, Conformal, Oracle, Random
from candidly.engine import batches, building, saved
from candidly.engine import model as models
from candidly.engine.batches import Sweep, predict_block
from candidly.engine.description import describe, fingerprint
from candidly.engine.fitting import fit
from candidly.engine.model import Model
from candidly.engine.nets import build as builds
from candidly.engine.nets import mlp as nets
from candidly.engine.problem import Problem
from candidly.engine.recipe import Recipe
from candidly.methods import METHODS, Cavl, Crosel, Pico, Proden, Supervised, Valen
from candidly.store import states
from tests.store.cases import forge_index

N, D, C = 24, 3, 4
RECIPE = Recipe("test", epochs=3, batch_size=8, max_lr=0.1)


def problem(seed=0, **keywords):
    rng = np.random.default_rng(seed)
    y = np.arange(N) % C
    X = rng.normal(size=(N, D)) + y[:, None]
    S = rng.random((N, C)) < 0.4
    S[np.arange(N), y] = True
    rows = [np.arange(20), np.arange(3, 24)]
    return Problem.of(X, S, **{"rows": rows, "seeds": (3, 4), "y": y, "standardise": True} | keywords)


def train(method=None, **keywords):
    method = Proden() if method is None else method
    net = "mlp" if isinstance(method, Pico | Valen) else "linear"
    data = keywords.pop("data", None) or problem()
    return fit(data, method, recipe=RECIPE, **{"net": net, "device": "cpu"} | keywords)


def assert_same(model, other, X=None):
    X = torch.linspace(-2, 5, 30).view(-1, D) if X is None else X
    assert torch.equal(model.predict(X), other.predict(X))
    assert torch.equal(model.kept, other.kept)
    assert {k: v.tolist() for k, v in model.history.items()} == {k: v.tolist() for k, v in other.history.items()}
    assert all(values.dtype == np.float64 for values in other.history.values())
    assert model.problem.classes == other.problem.classes
    assert model.problem.seeds == other.problem.seeds
    assert model.recipe == other.recipe
    assert model.recipe.name == "test"
    assert model.cleaner == other.cleaner
    assert type(model.method) is type(other.method)
    for field in dataclasses.fields(model.method):
        assert getattr(model.method, field.name) == getattr(other.method, field.name)


def small(hidden=6):
    return nn.Sequential(nn.Linear(D, hidden), nn.BatchNorm1d(hidden), nn.ReLU(), nn.Linear(hidden, C))


@dataclasses.dataclass
class Own(Cavl):
    """A user's method."""

    temperature: float = 2.0

    def predict(self, x):
        return torch.softmax(self.net(x) / self.temperature, -1)


@pytest.mark.parametrize("name", METHODS)
def test_save_and_load(name, tmp_path):
    changed = {"warmup": 1} if name in ("valen", "crosel") else {"theta": 0.002} if name == "pop" else {}
    model = train(METHODS[name](**changed))
    model.save(tmp_path)
    loaded = Model.load(tmp_path)
    assert_same(model, loaded)
    assert loaded.net == model.net
    assert sorted(path.suffix for path in tmp_path.iterdir()) == [".json", ".safetensors"]


@pytest.mark.parametrize(
    "keywords",
    [
        {"standardise": False},
        {"dtype": torch.float64},
        {"classes": ["a", "b", "c", "d"]},
        {"classes": (1, 2.5, "x", False)},
        {"y": None},
        {"rows": None, "seeds": (7,)},
    ],
    ids=str,
)
def test_save_and_load_any_problem(keywords, tmp_path):
    model = train(data=problem(**keywords), net="mlp")
    model.save(tmp_path)
    loaded = Model.load(tmp_path)
    assert_same(model, loaded)
    assert list(map(type, loaded.problem.classes)) == list(map(type, model.problem.classes))
    assert loaded.problem.X.dtype == model.problem.X.dtype
    loaded.save(tmp_path / "again")
    assert_same(model, Model.load(tmp_path / "again"))


def test_equal_class_names_are_refused():
    """1 == True, so one could not be told from the other."""
    with pytest.raises(ValueError, match="class True is listed twice"):
        problem(classes=(1, 2.5, "x", True))


@pytest.mark.parametrize("classes", [np.array([3, 5, 7, 9]), np.array(["a", "b", "c", "d"])], ids=["int", "str"])
def test_class_names_from_numpy_can_be_saved(classes, tmp_path):
    model = train(data=problem(classes=classes))
    model.save(tmp_path)
    assert Model.load(tmp_path).problem.classes == tuple(classes.tolist())


def test_classes_of_candidates_can_be_saved(tmp_path):
    S = encode([[10, 20], [10], [20, 30], [30], [10, 30], [20]])
    data = Problem.of(np.arange(6.0)[:, None], S)
    model = train(data=data, net="linear")
    model.save(tmp_path)
    assert Model.load(tmp_path).problem.classes == tuple(S.classes)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_a_model_of_low_precision_loads(dtype, tmp_path):
    """Problems may not have it any more, but models of 0.1 may."""
    data = problem()
    model = train(data=dataclasses.replace(data, X=data.X.to(dtype), shift=None, scale=None))
    model.save(tmp_path)
    loaded = Model.load(tmp_path)
    assert loaded.problem.dtype == dtype
    assert torch.equal(loaded.predict(data.X), model.predict(data.X))


def test_save_and_load_images(tmp_path):
    rng = np.random.default_rng(0)
    data = problem()
    images = Problem.of(rng.normal(size=(N, 3, 4, 4)), data.S.numpy(), seeds=(1, 2), standardise=True)
    model = train(Crosel(warmup=1), data=images)
    model.save(tmp_path)
    assert_same(model, Model.load(tmp_path), X=images.X)


def test_save_and_load_a_model_that_averages_over_mirror_images(tmp_path):
    data, recipe = bytes_problem(), dataclasses.replace(RECIPE, test_flips=True)
    model = fit(data, Proden(), recipe=recipe, net="linear", device="cpu")
    model.save(tmp_path)
    assert_same(model, Model.load(tmp_path), X=data.X)
    unlike = dataclasses.replace(model, recipe=RECIPE)
    assert not torch.equal(unlike.predict(data.X), model.predict(data.X))


def bytes_problem(stored=np.uint8, n=N, side=4, **keywords):
    """Images of bytes with a scaling, kept as bytes or as another type of number."""
    rng = np.random.default_rng(5)
    y = np.arange(n) % C
    X = (rng.integers(0, 128, (n, 3, side, side)) + 32 * y[:, None, None, None]).astype(stored)
    S = rng.random((n, C)) < 0.4
    S[np.arange(n), y] = True
    scaling = {"shift": np.full((3, 1, 1), 110.5), "scale": np.array([0.02, 0.021, 0.019])[:, None, None]}
    return Problem.of(X, S, **{"seeds": (1, 2), "y": y} | scaling | keywords)


@pytest.mark.parametrize("name", METHODS)
def test_bytes_train_as_numbers_do(name):
    """To the bit, since every byte is a float32: bytes are storage only."""
    changed = {"valen": {"warmup": 1}, "crosel": {"warmup": 1, "confidence": 0.26}}  # so that it selects rows
    method, recipe = METHODS[name](**changed.get(name, {})), dataclasses.replace(RECIPE, epochs=8)
    models = [fit(bytes_problem(stored), method, None, recipe, device="cpu") for stored in (np.uint8, np.float32)]
    assert models[0].problem.X.dtype == torch.uint8
    assert name != "crosel" or models[0].method.count.any()
    assert_same(*models, X=bytes_problem().X)


@pytest.mark.parametrize("cleaner", [Conformal(warmup=1), Clsp(k=3), Random(Clsp(k=3))], ids=describe)
def test_bytes_are_cleaned_as_numbers_are(cleaner):
    models = [train(cleaner=cleaner, data=bytes_problem(stored)) for stored in (np.uint8, np.float32)]
    assert_same(*models, X=bytes_problem().X)
    assert not torch.equal(models[0].kept, bytes_problem().sets)


def test_bytes_train_as_scaled_numbers_do():
    """Up to rounding, which 9 steps at a rate of 0.1 do not let grow beyond 1e-4."""
    stored = bytes_problem()
    numbers = Problem.of(stored.features, stored.S, seeds=stored.seeds)
    p, q = train(data=stored).predict(stored.X), train(data=numbers).predict(stored.features)
    torch.testing.assert_close(p, q, rtol=0, atol=1e-4)
    assert (p - p.mean(1, keepdim=True)).abs().max() > 0.1


class LargestFloat(TorchDispatchMode):
    """Remembers how many elements the largest floating-point result of any operation had."""

    elements = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        result = func(*args, **(kwargs or {}))
        for leaf in tree_leaves(result):
            if isinstance(leaf, torch.Tensor) and leaf.is_floating_point():
                self.elements = max(self.elements, leaf.numel())
        return result


def test_training_never_holds_all_bytes_as_numbers():
    with LargestFloat() as largest:
        data = bytes_problem(n=96, side=8)
        train(data=data)
    assert 0 < largest.elements < data.X.numel()


@pytest.mark.parametrize("stored", [np.uint8, np.float32])
def test_predict_takes_pixels_of_any_type(stored, monkeypatch):
    model = train(data=bytes_problem(stored))
    pixels = bytes_problem().X.numpy()
    p = model.predict(pixels.astype(np.float64))
    for X in (pixels, torch.from_numpy(pixels), pixels.astype(np.float32), pixels.astype(int), pixels.tolist()):
        assert torch.equal(model.predict(X), p)
    kinds = []
    monkeypatch.setattr(models, "predict_block", lambda *given: kinds.append(given[2].dtype) or predict_block(*given))
    model.predict(pixels)
    model.predict(pixels + 0.5)
    assert kinds == [torch.uint8 if stored is np.uint8 else torch.float32, torch.float32]
    assert not torch.equal(model.predict(pixels + 0.5), p), "half a grey level is a difference"
    with pytest.raises(ValueError, match="X has nan in row 1"):
        model.predict(np.where(np.arange(N)[:, None, None, None] == 1, np.nan, pixels))


@pytest.mark.parametrize("keywords", [{}, {"shift": None, "scale": None}, {"standardise": True}], ids=str)
def test_save_and_load_bytes(keywords, tmp_path):
    if "standardise" in keywords:
        keywords = keywords | {"shift": None, "scale": None}
    data = bytes_problem(**keywords)
    model = train(data=data)
    model.save(tmp_path)
    loaded = Model.load(tmp_path)
    assert loaded.problem.X.dtype == torch.uint8
    assert loaded.problem.standardised == data.standardised
    assert_same(model, loaded, X=data.X)
    assert_same(model, loaded, X=data.X.double())


def test_models_saved_before_scalings_could_be_given(tmp_path):
    train().save(tmp_path)
    index = tmp_path / "model.json"
    forge_index(index, lambda content: content["facts"].pop("standardised"))
    assert Model.load(tmp_path).problem.standardised


def test_a_network_of_ones_own_is_checked_with_what_it_will_see():
    seen = []

    class Watching(nn.Linear):
        def forward(self, x):
            seen.append(x.detach())
            return super().forward(x.flatten(1))

    data = bytes_problem()
    building.builder(data, lambda: Watching(48, C))()
    expected = data.features[:2]
    assert len(seen) == 2
    assert all(torch.equal(x, expected) for x in seen)


def test_a_network_of_ones_own_must_be_given_again(tmp_path):
    model = train(net=small)
    model.save(tmp_path)
    with pytest.raises(ValueError, match=r"with the custom network 'small'; pass load\(\.\.\., net=factory\)"):
        Model.load(tmp_path)
    assert_same(model, Model.load(tmp_path, net=small))


@pytest.mark.parametrize("other", [lambda: small(7), lambda: nn.Linear(D, C), lambda: small(1)])
def test_another_network_than_the_saved_one(other, tmp_path):
    """A factory that builds something else is an error that says so, not a network half filled."""
    train(net=small).save(tmp_path)
    with pytest.raises(ValueError, match="net"):
        Model.load(tmp_path, net=other)


def test_weights_are_never_broadcast_into_another_network(tmp_path):
    """One hidden unit's weights would fit into six by broadcasting."""

    def narrow():
        return nn.Sequential(nn.Linear(D, 1), nn.BatchNorm1d(1))

    def wide():
        return nn.Sequential(nn.Linear(D, C), nn.BatchNorm1d(C))

    train(net=lambda: nn.Sequential(*narrow(), nn.Linear(1, C))).save(tmp_path)
    with pytest.raises(ValueError, match="net"):
        Model.load(tmp_path, net=lambda: nn.Sequential(*wide(), nn.Linear(C, C)))


def test_a_method_of_ones_own_must_be_given_again(tmp_path):
    model = train(Own(3.0))
    model.save(tmp_path)
    with pytest.raises(ValueError, match=r"the method 'own', .*if it is a custom method, pass load\(\.\.\., method="):
        Model.load(tmp_path)
    given = Own(3.0)
    assert_same(model, Model.load(tmp_path, method=given))
    assert vars(given) == {"temperature": 3.0}


def test_the_librarys_supervised_method_loads(tmp_path):
    model = train(Supervised())
    model.save(tmp_path)
    assert_same(model, Model.load(tmp_path))


def bent(activation):
    """Return a custom network; those with another activation have the same tensors."""

    class Bent(nn.Linear):
        def forward(self, x):
            return activation(super().forward(x))

    return lambda: Bent(D, C)


@pytest.mark.parametrize(
    ("net", "other"),
    [
        (bent(torch.tanh), bent(torch.sigmoid)),
        (lambda: nn.Sequential(nn.Linear(D, C), nn.Tanh()), lambda: nn.Sequential(nn.Linear(D, C), nn.ReLU())),
    ],
)
def test_another_custom_network_of_the_same_shape_is_said(net, other, tmp_path):
    train(net=net).save(tmp_path)
    Model.load(tmp_path, net=net)
    with pytest.warns(
        UserWarning, match="the code or settings of net differ from those that the model was trained with"
    ) as seen:
        Model.load(tmp_path, net=other)
    assert len(seen) == 1


def test_another_custom_method_is_said(tmp_path):
    train(Own()).save(tmp_path)
    Model.load(tmp_path, method=Own())

    @dataclasses.dataclass
    class Other(Own):
        def predict(self, x):
            return super().predict(x).flip(-1)

    for other in (Other(), Own(temperature=3.0)):
        with pytest.warns(UserWarning, match="the code or settings of method differ from those that the model was"):
            Model.load(tmp_path, method=other)


def test_loading_draws_no_global_randomness(tmp_path):
    train(net=small).save(tmp_path)
    before = torch.get_rng_state()
    Model.load(tmp_path, net=small)
    assert torch.equal(torch.get_rng_state(), before)


def test_damaged_files(tmp_path):
    train().save(tmp_path)
    index, tensors = tmp_path / "model.json", next(tmp_path.glob("*.safetensors"))
    good, data = index.read_text(), tensors.read_bytes()
    tensors.write_bytes(data[:-1] + bytes([data[-1] ^ 1]))
    with pytest.raises(ValueError, match="truncated or was changed"):
        Model.load(tmp_path)
    tensors.unlink()
    with pytest.raises(FileNotFoundError, match="does not exist"):
        Model.load(tmp_path)
    tensors.write_bytes(data)
    index.write_text(good[:-10])
    with pytest.raises(ValueError, match="not a JSON file"):
        Model.load(tmp_path)
    index.write_text(json.dumps(json.loads(good) | {"format": 99}))
    with pytest.raises(ValueError, match="format version 99"):
        Model.load(tmp_path)
    index.write_text(good)
    forge_index(index, lambda content: content["tensors"].update(name="../elsewhere.safetensors"))
    with pytest.raises(ValueError, match="the name of a file next to it is"):
        Model.load(tmp_path)
    index.write_text(good)
    assert Model.load(tmp_path).predict(torch.zeros(2, D)).shape == (2, 2, C)


class LargestReal(TorchDispatchMode):
    """Remembers how many elements the largest result with memory had, and which operations had one."""

    def __init__(self):
        super().__init__()
        self.elements, self.operations = 0, set()

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        result = func(*args, **(kwargs or {}))
        for leaf in tree_leaves(result):
            if isinstance(leaf, torch.Tensor) and not leaf.is_meta and 0 not in leaf.stride():
                self.elements = max(self.elements, leaf.numel())
                self.operations.add(func.overloadpacket.__name__)
        return result


def tiny_parts(method=None, **keywords):
    data = Problem.of([[0.0], [0.5], [1.0]], [[True, False], [True, True], [False, True]], seeds=[0, 1])
    return train(method, data=data, **keywords).parts()


FORGED = {
    "10^12 features": ({"shape": [10**12]}, r"claims rows of shape \(1000000000000,\)"),
    "10^8 features": ({"shape": [10**8]}, r"networks would hold 400000004 numbers, but 8 were saved"),
    "two features": ({"shape": [2]}, r"networks would hold 12 numbers, but 8 were saved"),
    "many axes": ({"shape": [1] * 9}, "shape is .* instead of 1 to 8 whole numbers"),
    "no axes": ({"shape": []}, "shape is"),
    "negative": ({"shape": [-1]}, "shape is"),
    "a text for a number": ({"shape": ["1"]}, "shape is"),
    "nested": ({"shape": [[1]]}, "shape is"),
    "a truth for a number": ({"shape": [True]}, "shape is"),
    "a number for a list": ({"shape": 10**12}, "shape is 1000000000000 instead of"),
    "10^12 seeds": ({"seeds": 10**12}, "seeds is 1000000000000 instead of"),
    "a million seeds": ({"seeds": list(range(10**6))}, r"seeds is \[0, 1, 2, 3, 4, 5, \.\.\.\] instead of 1 to 10000"),
    "ten thousand seeds": ({"seeds": list(range(10**4))}, "claims .* 10000 runs, more than its"),
    "three seeds": ({"seeds": [0, 1, 2]}, "kept has shape"),
    "no seeds": ({"seeds": []}, "seeds is"),
    "a negative seed": ({"seeds": [0, -1]}, "seeds is"),
    "half a seed": ({"seeds": [0, 0.5]}, "seeds is"),
    "10^12 classes": ({"classes": 10**12}, "classes is 1000000000000 instead of a list of names"),
    "a million classes": ({"classes": list(range(10**6))}, "claims .* 1000000 classes"),
    "three classes": ({"classes": [0, 1, 2]}, "kept has shape"),
    "equal classes": ({"classes": ["a", "a"]}, "class 'a' is listed twice"),
    "nested classes": ({"classes": [["a"], "b"]}, "classes is"),
    "missing class": ({"classes": [None, "b"]}, "classes is"),
    "no such dtype": ({"dtype": "float31"}, "dtype is 'float31' instead of one of uint8, float16"),
    "dtype of torch": ({"dtype": "nn"}, "dtype is"),
    "another dtype": ({"dtype": "float64"}, r"net\.net\.head\.weight has dtype torch.float32 instead of torch.float64"),
    "listed dtype": ({"dtype": ["float32"]}, "dtype is"),
    "no such net": ({"net": "cnn"}, "unknown network 'cnn'"),
    "another net": ({"net": "mlp"}, "networks would hold"),
    "a net for images": ({"net": "resnet9"}, "resnet9 reads"),
    "a net that is no name": ({"net": {}}, "net is {} instead of a name"),
    "own_net": ({"own_net": 0}, "own_net is 0 instead of true or false"),
    "standardised": ({"standardised": "yes"}, "standardised is 'yes'"),
    "cleaner": ({"cleaner": None}, "cleaner is None"),
    "recipe": ({"recipe": []}, "recipe is"),
    "unknown recipe": ({"recipe": {"momentum": 1}}, "recipe has the unknown setting 'momentum'"),
    "wrong recipe": ({"recipe": {"epochs": -1}}, "epochs is -1"),
    "mistyped recipe": ({"recipe": {"epochs": "many"}}, "epochs is 'many'"),
    "unnamed recipe": ({"recipe": {"name": 3}}, "recipe has the name 3"),
    "method": ({"method": "proden"}, "method is 'proden' instead of"),
    "unnamed method": ({"method": {}}, "method is {}"),
    "method named otherwise": ({"method": {"name": ["proden"]}}, "method is"),
    "unknown setting": ({"method": {"name": "proden", "x": 1}}, "'proden' has no setting x=1"),
    "setting of another type": ({"method": {"name": "pop", "start": "1"}}, "'pop' has no setting start='1'"),
    "setting that is a truth": ({"method": {"name": "pop", "start": True}}, "no setting start=True"),
    "half a setting": ({"method": {"name": "pop", "start": 1.5}}, r"no setting start=1\.5"),
    "endless setting": ({"method": {"name": "pop", "theta": float("inf")}}, "no setting theta=inf"),
    "setting of 400 digits": ({"method": {"name": "pop", "theta": 10**400}}, "no setting theta=1000"),
    "number for a text": ({"method": {"name": "pop", "growth": 1}}, "no setting growth=1"),
    "unknown choice": ({"method": {"name": "pop", "growth": "fast"}}, "growth is 'fast'"),
    "another method": ({"method": {"name": "crosel"}}, "networks would hold"),
    "unknown method": ({"method": {"name": "magic"}}, "trained with the method 'magic', which candidly does not know"),
}


@pytest.mark.parametrize("case", FORGED)
def test_forged_facts(case):
    """One line that says what is wrong, and no memory for what is claimed."""
    tensors, facts = tiny_parts()
    changes, message = FORGED[case]
    with LargestReal() as largest, pytest.raises(ValueError, match=message) as caught:
        Model.of_parts(tensors, facts | changes)
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 400
    assert largest.elements <= 16


@pytest.mark.parametrize("name", [*saved._FACTS, "standardised"])
def test_missing_facts(name):
    tensors, facts = tiny_parts()
    del facts[name]
    if name == "standardised":
        assert not Model.of_parts(tensors, facts).problem.standardised
        return
    with pytest.raises(ValueError, match=rf"facts lack '{name}': the model was written by another version"):
        Model.of_parts(tensors, facts)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"k": 10**15}, None),
        ({"k": -1}, "k is -1"),
        ({"k": 2**62}, "cannot be built"),
        ({"k": 3.0}, None),
        ({"warmup": 0}, "warmup is 0"),
    ],
    ids=str,
)
def test_settings_that_are_sizes(settings, message):
    """VALEN's graph would have k entries per row; no model needs one to predict."""
    model = train(Valen())
    tensors, facts = model.parts()
    facts["method"] |= settings
    with LargestReal() as largest:
        if message is None:
            assert torch.equal(Model.of_parts(tensors, facts).predict(problem().X), model.predict(problem().X))
        else:
            with pytest.raises(ValueError, match=message):
                Model.of_parts(tensors, facts)
    assert largest.elements <= max(value.numel() for value in tensors.values())


FORGED_TENSORS = {
    "no kept": ({"kept": None}, "kept is missing"),
    "kept of numbers": ({"kept": torch.ones(2, 3, 2)}, "kept has shape"),
    "kept without runs": ({"kept": torch.ones(3, 2, dtype=torch.bool)}, "kept has shape"),
    "no weights": ({"net.net.head.weight": None}, "networks would hold 8 numbers, but 4 were saved"),
    "weights elsewhere": (
        {"net.net.head.weight": None, "net.x": torch.ones(4)},
        r"net\.net\.head\.weight is missing instead of having shape \(2, 1, 2\)",
    ),
    "complex weights": ({"net.net.head.weight": torch.ones(2, 1, 2, dtype=torch.cfloat)}, "has dtype torch.complex64"),
    "turned weights": ({"net.net.head.weight": torch.ones(2, 2, 1)}, r"has shape \(2, 2, 1\)"),
    "history of one run": ({"history.loss": torch.ones(3, 1, dtype=torch.double)}, r"history\.loss has shape \(3, 1\)"),
    "history of texts": ({"history.loss": torch.ones(3, 2, dtype=torch.uint8)}, r"history\.loss has shape"),
    "flat history": ({"history.loss": torch.ones(2, dtype=torch.double)}, r"history\.loss has shape"),
    "shift alone": ({"shift": torch.ones(2, 1, 1)}, "shift and scale do not fit"),
    "scaling of one run": ({"shift": torch.ones(1, 1, 1), "scale": torch.ones(1, 1, 1)}, "shift and scale do not fit"),
    "scaling of two columns": (
        {"shift": torch.ones(2, 1, 2), "scale": torch.ones(2, 1, 2)},
        "shift and scale do not fit",
    ),
    "flat scaling": ({"shift": torch.ones(2), "scale": torch.ones(2)}, "shift and scale do not fit"),
    "whole scaling": (
        {"shift": torch.ones(2, 1, 1, dtype=torch.int64), "scale": torch.ones(2, 1, 1)},
        "shift and scale do not fit",
    ),
}


@pytest.mark.parametrize("case", FORGED_TENSORS)
def test_forged_tensors(case):
    tensors, facts = tiny_parts()
    changes, message = FORGED_TENSORS[case]
    changed = {name: value for name, value in (tensors | changes).items() if value is not None}
    with pytest.raises(ValueError, match=message) as caught:
        Model.of_parts(changed, facts)
    assert "\n" not in str(caught.value)


def test_a_network_of_ones_own_is_not_built_more_often_than_it_was_saved():
    tensors, facts = train(net=small).parts()
    built = []
    forged = facts | {"seeds": list(range(5000))}
    tensors["kept"] = torch.zeros(5000, 1, C, dtype=torch.bool)
    with pytest.raises(ValueError, match=r"claims .* 5000 runs"):
        Model.of_parts(tensors, forged, net=lambda: built.append(1) or small())
    assert not built


def test_parts_are_the_model():
    """Facts are JSON, and what is made of the parts shares no weights with the model."""
    model = train(Crosel(warmup=1), net="mlp")
    tensors, facts = model.parts()
    again = Model.of_parts(tensors, json.loads(json.dumps(facts)))
    assert_same(model, again)
    assert again.parts()[1] == facts
    X = problem().X
    before = again.predict(X)
    with torch.no_grad():
        for value in model.method.nets.parameters():
            value.zero_()
    assert torch.equal(again.predict(X), before)


@pytest.mark.parametrize("name", METHODS)
def test_a_model_of_parts_is_lean(name):
    """It holds its networks and nothing per row, and can still be changed to another device and saved."""
    model = Model.of_parts(*train(METHODS[name](), net="mlp").parts())
    assert model.method.state() == {}
    assert all(not value.is_meta for value in building.network_tensors(model.method).values())
    assert model.problem.X.shape == (0, D)
    assert_same(Model.of_parts(*model.parts()), model)
    assert_same(model.to("cpu"), model)


@pytest.mark.parametrize("name", METHODS)
def test_a_model_without_rows_predicts_as_before(name, tmp_path):
    model = train(METHODS[name](), net="mlp")
    lean, X = model.without_rows(), problem().X
    before = model.predict(X)
    assert torch.equal(lean.predict(X), before)
    assert lean.kept.shape == (2, 0, C)
    assert all(
        N not in value.shape for value in tree_leaves(list(vars(lean.method).values())) if hasattr(value, "shape")
    )
    assert not any(isinstance(value, tuple) for value in vars(lean.method).values())
    assert model.kept.shape == (2, N, C)  # the model itself stays as it is
    assert vars(lean.method).keys() <= vars(model.method).keys()
    lean.save(tmp_path)
    assert torch.equal(Model.load(tmp_path).predict(X), before)
    with torch.no_grad():
        for value in building.network_tensors(model.method).values():
            value.zero_()
    assert torch.equal(lean.predict(X), before)


def test_a_custom_method_without_rows_keeps_its_numbers():
    @dataclasses.dataclass
    class Mine(Own):
        def setup(self, problem, build_net):
            super().setup(problem, build_net)
            self.problem, self.factor, self.same = problem, torch.full((2, 1), 3.0), self.net

    model = train(Mine(3.0), net=small)
    lean = model.without_rows()
    assert len(model.method.problem.X) == N
    assert len(lean.method.problem.X) == len(lean.method.problem.rows) == 0
    assert lean.method.factor.tolist() == [[3.0], [3.0]]
    assert lean.method.same is lean.method.net
    assert not hasattr(lean.method, "q")
    assert torch.equal(lean.predict(problem().X), model.predict(problem().X))


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_images_without_rows_are_predicted_in_float32(tmp_path):
    """A ResNet-9 trains in bfloat16 on a GPU; without rows it computes like one that was loaded."""
    rng = np.random.default_rng(0)
    images = rng.integers(0, 256, (64, 3, 32, 32), dtype=np.uint8)
    data = Problem.of(images, np.eye(2, dtype=bool)[rng.integers(2, size=64)], scale=1 / 255)
    model = fit(data, Proden(), recipe=RECIPE, net="resnet9", device="cuda")
    model.save(tmp_path)
    loaded = Model.load(tmp_path).to("cuda").predict(images)
    assert torch.equal(model.without_rows().predict(images), loaded)
    assert not torch.equal(model.predict(images), loaded)


def test_initial_weights_are_drawn_for_new_networks_only():
    """Loaded ones would be overwritten."""
    with LargestReal() as trained:
        parts = train(net="mlp").parts()
    with LargestReal() as loaded:
        Model.of_parts(*parts)
    assert "uniform_" in trained.operations
    assert "uniform_" not in loaded.operations
    assert "copy_" in loaded.operations


@pytest.mark.parametrize("device", ["cpu", torch.device("cpu")])
def test_to_another_device(device):
    """The model that is moved stays as it is."""
    model = train(Own(3.0), net=small)
    X = problem().X
    before = model.predict(X)
    moved = model.to(device)
    assert_same(model, moved)
    with torch.no_grad():
        for value in moved.method.net.parameters():
            value.zero_()
    assert torch.equal(model.predict(X), before)
    with pytest.raises(ValueError, match="nowhere"):
        model.to("nowhere")


@pytest.mark.gpu
@pytest.mark.parametrize("name", METHODS)
def test_from_and_to_cuda(name, tmp_path):
    model, X = train(METHODS[name](), net="mlp", device="cuda"), problem().X
    p = model.predict(X)
    host = model.to("cpu")
    assert host.problem.shift.device.type == "cpu"
    assert torch.allclose(host.predict(X), p, atol=1e-3)
    assert torch.equal(host.to("cuda").predict(X), p)
    assert torch.equal(Model.of_parts(*model.parts()).predict(X), host.predict(X))
    model.save(tmp_path)
    assert torch.equal(Model.load(tmp_path).to("cuda").predict(X), p)


def test_models_saved_as_states_load_and_are_replaced(tmp_path):
    model = train()
    states.write(tmp_path, *model.parts(), stem="model")
    assert_same(model, Model.load(tmp_path))
    model.save(tmp_path)
    assert sorted(path.suffix for path in tmp_path.iterdir()) == [".json", ".safetensors"]
    assert_same(model, Model.load(tmp_path))


def test_no_model_there(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"model\.json does not exist"):
        Model.load(tmp_path / "nowhere")


@pytest.mark.parametrize("name", ["proden", "crosel", "valen"])
def test_predict_equals_sweep(name):
    data = problem()
    model = train(METHODS[name](), data=data, net="mlp")
    swept = Sweep(data, model.method)(model.method.predict)
    p = model.predict(data.X)
    assert p.shape == (2, N, C)
    assert torch.allclose(p, swept, atol=1e-6)
    assert torch.allclose(p.sum(-1), torch.ones(2, N), atol=1e-5)
    assert not torch.allclose(p[0], p[1], atol=1e-3)


def test_predict_is_what_the_network_says():
    data = problem()
    model = train(data=data)
    for run, rows in enumerate(data.rows):
        x = (data.X - data.X[rows].mean(0)) / data.X[rows].std(0, unbiased=False)
        z = x @ model.method.net.head.weight[run] + model.method.net.head.bias[run]
        assert torch.allclose(model.predict(data.X)[run], z.softmax(-1), atol=1e-5)


def test_predict_takes_arrays_and_lists():
    model = train()
    X = np.linspace(-1, 4, 6 * D).reshape(6, D)
    p = model.predict(X)
    assert p.dtype == torch.float32
    assert torch.equal(p, model.predict(X.tolist()))
    assert torch.equal(p, model.predict(torch.as_tensor(X)))
    assert torch.equal(p, model.predict(X.astype(np.float32)))
    assert torch.equal(model.predict(X[:1].astype(int)), model.predict(X[:1].astype(int).astype(float)))


@pytest.mark.parametrize("rows", [0, 1, 63, 64, 65, 130])
def test_predict_works_in_blocks_of_one_size(rows, monkeypatch):
    model, sizes, plain = train(net="mlp"), [], Proden.predict
    X = torch.randn(rows, *problem().X.shape[1:])
    alone = [model.predict(row[None]) for row in X]
    monkeypatch.setattr(Proden, "predict", lambda self, x: sizes.append(x.shape[1]) or plain(self, x))
    found = model.predict(X)
    assert found.shape == (2, rows, C)
    assert sizes == [64] * -(-rows // 64)
    assert torch.equal(found, torch.cat(alone, 1) if alone else found)


@pytest.mark.parametrize("numbers", [1, 6 * D, 11 * D, 10**6])
def test_sweeps_work_in_blocks(numbers, monkeypatch):
    """A block holds at most this many numbers, of input or of a layer, over all runs, and at least one row."""
    model, data = train(net="mlp"), problem()
    sizes = []
    sweep = Sweep(data, model.method)
    whole = sweep(model.method.predict)
    monkeypatch.setattr(batches, "_BLOCK_NUMBERS", {"cpu": numbers})
    monkeypatch.setattr(batches, "_LAYER_WIDTH", 2 * D)
    assert torch.allclose(sweep(lambda x: sizes.append(x.shape[1]) or model.method.predict(x)), whole, atol=1e-6)
    assert sum(sizes) == N
    assert max(sizes) == min(N, max(1, numbers // (2 * 2 * D)))


def test_a_model_is_in_evaluation_mode_for_good():
    model = train(net="mlp")
    for one in (model, model.to("cpu"), model.without_rows(), Model.of_parts(*model.parts())):
        before = {name: value.clone() for name, value in one.method.net.state_dict().items()}
        one.predict(problem().X)
        assert not any(module.training for module in one.method.net.modules())
        for name, value in one.method.net.state_dict().items():
            assert torch.equal(value, before[name])


def test_threads_share_a_model_while_another_trains():
    model, X = train(net="mlp"), problem().X
    expected = [model.predict(X[i : i + 1]) for i in range(N)]
    before = {name: value.clone() for name, value in model.method.net.state_dict().items()}
    with ThreadPoolExecutor(9) as pool:
        fits = [pool.submit(train, net="mlp") for _ in range(2)]
        calls = [pool.submit(model.predict, X[i % N : i % N + 1]) for i in range(400)]
        assert all(torch.equal(call.result(), expected[i % N]) for i, call in enumerate(calls))
        assert all(torch.equal(fit.result().predict(X), model.predict(X)) for fit in fits)
    assert all(torch.equal(value, before[name]) for name, value in model.method.net.state_dict().items())


def test_builder_gives_every_network_its_own_weights():
    data = problem()
    build = building.builder(data, "linear")
    first, second = build(), build()
    assert not torch.equal(first.head.weight, second.head.weight)
    again = building.builder(data, "linear")
    assert torch.equal(again().head.weight, first.head.weight)
    assert torch.equal(again().head.weight, second.head.weight)
    decoder = build("decoder", inputs=C, outputs=D)
    assert isinstance(decoder, nets.Decoder)
    assert decoder.second.weight.shape == (2, D, D)
    assert building.builder(problem(dtype=torch.float64), "mlp")().head.weight.dtype == torch.float64


@pytest.mark.parametrize("half", [False, True])
def test_builder_asks_for_half_precision(half, monkeypatch):
    asked = []

    def spy(net, shape, outputs, generators, features=False, half=False):
        asked.append(half)
        return builds.build(net, shape, outputs, generators, features)

    monkeypatch.setattr(building, "build", spy)
    net = building.builder(bytes_problem(), "linear", half)()
    assert set(asked) == {half}
    assert net.head.weight.dtype == torch.float32


def test_tensors_are_copied_all_or_none():
    def target():
        return {"a": torch.zeros(2), "b": torch.zeros(2, 1)}

    source = {"a": torch.ones(2), "b": torch.full((2, 1), 2.0), "more": torch.ones(1)}
    filled = target()
    places = {name: value.data_ptr() for name, value in filled.items()}
    building.copy_tensors(source, filled, "do this")
    assert filled.keys() == {"a", "b"}
    assert all(torch.equal(value, source[name]) for name, value in filled.items())
    assert {name: value.data_ptr() for name, value in filled.items()} == places
    wrong = [
        ({"a": source["a"]}, r"b is missing instead of having shape \(2, 1\): do this"),
        (source | {"b": torch.ones(1, 1)}, r"b has shape \(1, 1\) instead of having shape \(2, 1\): do this"),
    ]
    for other, message in wrong:
        empty = target()
        with pytest.raises(ValueError, match=message):
            building.copy_tensors(other, empty, "do this")
        assert not any(value.any() for value in empty.values())


def test_describe():
    assert describe(None) is None
    assert describe("mlp") == "mlp"
    settings = {"name": "crosel", "warmup": 3, "confidence": 0.9, "lambda_cr": 2.0, "bank": "training"}
    assert describe(Crosel(warmup=3)) == settings
    assert describe(small) == "small"
    like = describe(Random(Conformal.published()))["like"]
    assert like["name"] == "conformal"
    assert like["alpha"] == 0.05
    assert describe(Conformal()) != describe(Conformal(warmup=11))


def test_describe_tells_arrays_apart():
    y = np.arange(5)
    assert describe(Oracle(y)) == describe(Oracle(y.copy()))
    assert describe(Oracle(y)) == describe(Oracle(y.tolist()))
    others = (y + 1, y[::-1], y.astype(np.float32), y[:4], y[None])
    descriptions = [str(describe(Oracle(other))) for other in (y, *others)]
    assert len(set(descriptions)) == len(descriptions)
    assert describe(torch.arange(5)) == describe(y)
    assert describe(Clsp(features=y[:, None]))["features"] != describe(Clsp())["features"]


@pytest.mark.parametrize(
    "value", [np.int64(3), np.float64(0.5), np.float32(0.5), np.bool_(True), 3, 0.5, True], ids=repr
)
def test_describe_keeps_numbers(value):
    """Hyper-parameters often come from numpy, as in a grid of them."""
    found = describe(value)
    assert found == value
    assert json.loads(json.dumps(found)) == found


def test_a_method_with_numbers_from_numpy_can_be_saved(tmp_path):
    model = train(Crosel(warmup=np.int64(1), confidence=np.float32(0.5)))
    model.save(tmp_path)
    assert Model.load(tmp_path).method.warmup == 1


def test_fingerprint():
    """Anything a training depends on changes it, and nothing else does."""
    base = problem()
    assert fingerprint(base) == fingerprint(problem())
    X, S = base.X.clone(), base.S.clone()
    X[5, 1] += 1e-3
    S[5] = True
    changed = [
        dataclasses.replace(base, X=X),
        dataclasses.replace(base, S=S),
        dataclasses.replace(base, S=base.sets.clone()),
        dataclasses.replace(base, rows=(base.rows[0], base.rows[1][1:])),
        dataclasses.replace(base, rows=base.rows[::-1]),
        dataclasses.replace(base, seeds=(3, 5)),
        dataclasses.replace(base, seeds=(4, 3)),
        dataclasses.replace(base, y=None),
        dataclasses.replace(base, y=base.y.flip(0)),
        dataclasses.replace(base, shift=base.shift + 1),
        dataclasses.replace(base, scale=None, shift=None),
        problem(dtype=torch.float64),
    ]
    prints = [fingerprint(one) for one in (base, *changed)]
    assert len(set(prints)) == len(prints)
