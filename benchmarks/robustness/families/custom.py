"""User-defined networks, methods and cleaners that misbehave."""

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import torch
from torch import nn

import candidly
from benchmarks.robustness import made
from benchmarks.robustness.case import Case, Expected, either, error, right

FAMILY = "custom"
BUG = "my own bug"
OWN_ERROR = right(lambda wrong: isinstance(wrong, Exception))  # which reaches the user, as it is or as a cause


class Wrapped(nn.Module):
    """A network with a changed output."""

    def __init__(self, change: Callable[[Any], Any], width: int = 3, classes: int = 3) -> None:
        super().__init__()
        self.inner = nn.Linear(width, classes)
        self.change = change

    def forward(self, x: Any) -> Any:
        """Return the changed output."""
        return self.change(self.inner(x))


class Raising(nn.Module):
    """A network that raises in `forward`."""

    def __init__(self, wrong: type[Exception] = RuntimeError) -> None:
        super().__init__()
        self.inner, self.wrong = nn.Linear(3, 3), wrong

    def forward(self, x: Any) -> Any:
        """Raise."""
        raise self.wrong(BUG)


class InPlace(nn.Module):
    """A network that changes its input."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(3, 3)

    def forward(self, x: Any) -> Any:
        """Set the input to 0 and use it."""
        x.zero_()
        return self.inner(x)


def _late_nan() -> Any:
    """Return a network that returns NaN after 10 steps."""
    steps = [0]

    def change(z: Any) -> Any:
        steps[0] += 1
        return z * float("nan") if steps[0] > 10 else z

    return Wrapped(change)


def finite(classifier: Any) -> bool:
    """Check that all results are finite."""
    return bool(
        np.isfinite(classifier.candidate_proba_).all() and np.isfinite(classifier.predict_proba(made.features())).all()
    )


def _shared_module() -> Callable[[], Any]:
    module = nn.Linear(3, 3)
    return lambda: module


# a factory, and what is expected of a fit with it
NETS: dict[str, tuple[Callable[[], Any], Expected]] = {
    "good": (lambda: nn.Linear(3, 3), right(finite)),
    "returns None": (lambda: Wrapped(lambda z: None), error("net")),
    "returns a tuple": (lambda: Wrapped(lambda z: (z, z)), error("net")),
    "returns a dict": (lambda: Wrapped(lambda z: {"logits": z}), error("net")),
    "returns NumPy": (lambda: Wrapped(lambda z: z.detach().numpy()), error("net")),
    "returns a number": (lambda: Wrapped(lambda z: 3.0), error("net")),
    "returns one column": (lambda: Wrapped(lambda z: z[..., :1]), error("net")),
    "returns too many classes": (lambda: nn.Linear(3, 7), error("net")),
    "returns too few classes": (lambda: nn.Linear(3, 2), error("net")),
    "returns one row": (lambda: Wrapped(lambda z: z[:1]), error("net")),
    "returns the sum over rows": (lambda: Wrapped(lambda z: z.sum(0)), error("net")),
    "returns three axes": (lambda: Wrapped(lambda z: z[..., None]), error("net")),
    "returns integers": (lambda: Wrapped(lambda z: z.long()), error("net")),
    "returns booleans": (lambda: Wrapped(lambda z: z > 0), error("net")),
    "returns complex numbers": (lambda: Wrapped(lambda z: z * 1j), error("net")),
    "returns float64": (lambda: Wrapped(lambda z: z.double()), either("net", check=finite)),
    "returns bfloat16": (lambda: Wrapped(lambda z: z.bfloat16()), either("net", check=finite)),
    "returns NaN": (lambda: Wrapped(lambda z: z * float("nan")), error("net", "finite", "NaN", "nan", "proden")),
    "returns infinity": (lambda: Wrapped(lambda z: z + float("inf")), error("net", "finite", "NaN", "nan", "proden")),
    "returns NaN later": (_late_nan, error("net", "finite", "NaN", "nan", "proden")),
    "returns detached logits": (lambda: Wrapped(lambda z: z.detach()), error("net", "parameter", "gradient", "loss")),
    "returns probabilities of 0 and 1": (
        lambda: Wrapped(lambda z: torch.softmax(z * 1e9, -1)),
        either("net", check=finite),
    ),
    "takes another width": (lambda: nn.Linear(7, 3), error("net")),
    "takes images": (lambda: nn.Conv2d(3, 3, 1), error("net")),
    "raises RuntimeError": (lambda: Raising(), OWN_ERROR),
    "raises KeyError": (lambda: Raising(KeyError), OWN_ERROR),
    "raises ValueError": (lambda: Raising(ValueError), OWN_ERROR),
    "raises ZeroDivisionError": (lambda: Raising(ZeroDivisionError), OWN_ERROR),
    "changes its input": (
        lambda: InPlace(),
        either(
            "net",
            check=lambda c: (
                made.same(c.features_.transform(made.features()), made.fitted().features_.transform(made.features()))
                and finite(c)
            ),
        ),
    ),
    "has no parameters": (lambda: nn.Identity(), error("net", "parameter")),
    "has frozen parameters": (lambda: nn.Linear(3, 3).requires_grad_(False), error("net", "parameter", "gradient")),
    "has unused parameters": (lambda: _unused(), either("net", "parameter", check=finite)),
    "has integer parameters": (lambda: _integer(), either("net", "parameter", check=finite)),
    "has parameters of NaN": (lambda: _nan_parameters(), error("net", "finite", "NaN", "nan", "proden")),
    "has float64 parameters": (lambda: nn.Linear(3, 3).double(), either("net", check=finite)),
    "has half parameters": (lambda: nn.Linear(3, 3).half(), either("net", check=finite)),
    "is on the meta device": (lambda: nn.Linear(3, 3, device="meta"), error("net", "meta")),
    "is lazy": (lambda: nn.LazyLinear(3), either("net", check=finite)),
    "is None": (lambda: None, error("net")),
    "is a function": (lambda: lambda x: x, error("net")),
    "is a tensor": (lambda: torch.zeros(3), error("net")),
    "is a class": (lambda: nn.Linear, error("net")),
    "is frozen by TorchScript": (lambda: torch.jit.script(nn.Linear(3, 3)), either("net", check=finite)),
    "has dropout": (lambda: nn.Sequential(nn.Linear(3, 8), nn.Dropout(0.5), nn.Linear(8, 3)), right(finite)),
    "has batch normalisation": (
        lambda: nn.Sequential(nn.Linear(3, 8), nn.BatchNorm1d(8), nn.Linear(8, 3)),
        right(finite),
    ),
    "is recurrent": (lambda: nn.LSTM(3, 3), error("net")),
}


def _unused() -> Any:
    network = Wrapped(lambda z: z)
    network.extra = nn.Linear(5, 5)
    return network


def _integer() -> Any:
    network = nn.Linear(3, 3)
    network.extra = nn.Parameter(torch.zeros(3, dtype=torch.long), requires_grad=False)
    return network


def _nan_parameters() -> Any:
    network = nn.Linear(3, 3)
    nn.init.constant_(network.weight, float("nan"))
    return network


class Own(candidly.Proden):
    """A method with a changed step."""

    def __init__(self, change: Callable[[Any], Any] | None = None, **hooks: Any) -> None:
        self.change, self.hooks = change, hooks

    def step(self, batch: Any, phase: Any) -> Any:
        """Return a changed loss."""
        loss = super().step(batch, phase)
        return loss if self.change is None else self.change(loss)

    def predict(self, x: Any) -> Any:
        """Return changed probabilities."""
        p = super().predict(x)
        return self.hooks["predict"](p) if "predict" in self.hooks else p

    def networks(self) -> Any:
        """Return changed networks."""
        return self.hooks["networks"](super().networks()) if "networks" in self.hooks else super().networks()

    def trains(self, phase: Any) -> Any:
        """Return changed networks to train."""
        return self.hooks["trains"](super().trains(phase)) if "trains" in self.hooks else super().trains(phase)

    def phase(self, epoch: int) -> Any:
        """Return a changed phase."""
        return self.hooks["phase"](epoch) if "phase" in self.hooks else super().phase(epoch)

    def epoch_end(self, epoch: int, sweep: Any) -> None:
        """Do something else after an epoch."""
        if "epoch_end" in self.hooks:
            self.hooks["epoch_end"](epoch)


def _raise(wrong: Exception) -> Any:
    raise wrong


METHODS: dict[str, tuple[Callable[[], Any], Expected]] = {
    "good": (lambda: Own(), right(lambda model: bool(model.predict(made.features()).isfinite().all()))),
    "step returns None": (lambda: Own(lambda loss: None), error("step", "loss", "Own", "own")),
    "step returns a number": (lambda: Own(lambda loss: 1.0), error("step", "loss", "Own", "own")),
    "step returns one loss too many": (
        lambda: Own(lambda loss: torch.cat([loss, loss])),
        error("step", "loss", "Own", "own"),
    ),
    "step returns the sum": (
        lambda: Own(lambda loss: loss.sum()),
        either("step", "loss", "Own", "own", check=lambda model: bool(model.predict(made.features()).isfinite().all())),
    ),
    "step returns a matrix": (lambda: Own(lambda loss: loss[None].expand(3, -1)), error("step", "loss", "Own", "own")),
    "step returns a detached loss": (
        lambda: Own(lambda loss: loss.detach()),
        error("step", "loss", "gradient", "Own", "own"),
    ),
    "step returns NaN": (lambda: Own(lambda loss: loss * float("nan")), error("finite", "NaN", "nan", "loss")),
    "step returns infinity": (
        lambda: Own(lambda loss: loss * float("inf")),
        error("finite", "NaN", "nan", "inf", "loss"),
    ),
    "step returns integers": (lambda: Own(lambda loss: loss.long()), error("step", "loss", "gradient", "Own", "own")),
    "step raises": (lambda: Own(lambda loss: _raise(KeyError(BUG))), OWN_ERROR),
    "predict returns None": (lambda: Own(predict=lambda p: None), error("predict", "Own", "own")),
    "predict returns one row": (lambda: Own(predict=lambda p: p[:, :1]), error("predict", "Own", "own")),
    "predict returns NaN": (
        lambda: Own(predict=lambda p: p * float("nan")),
        error("predict", "finite", "NaN", "nan", "Own", "own"),
    ),
    "networks returns None": (lambda: Own(networks=lambda nets: None), error("networks", "Own", "own")),
    "networks returns nothing": (lambda: Own(networks=lambda nets: {}), error("networks", "Own", "own")),
    "networks returns a list": (
        lambda: Own(networks=lambda nets: list(nets.values())),
        error("networks", "Own", "own"),
    ),
    "trains returns None": (lambda: Own(trains=lambda nets: None), error("trains", "Own", "own")),
    "trains returns nothing": (lambda: Own(trains=lambda nets: []), error("trains", "Own", "own", "train")),
    "trains returns another network": (
        lambda: Own(trains=lambda nets: [nn.Linear(3, 3)]),
        error("trains", "Own", "own"),
    ),
    "phase returns a list": (lambda: Own(phase=lambda epoch: [epoch]), error("phase", "Own", "own")),
    "epoch_end raises": (lambda: Own(epoch_end=lambda epoch: _raise(ZeroDivisionError(BUG))), OWN_ERROR),
}


class Keeping(candidly.Cleaner):
    """A cleaner with a changed result."""

    def __init__(self, change: Callable[[Any, Any], Any]) -> None:
        self.change = change

    def keep(self, p: Any, S: Any, batch: Any) -> Any:
        """Return changed candidates."""
        return self.change(p, S)


def subset(model: Any) -> bool:
    """Check that every row keeps some of its candidates, and nothing else."""
    S = torch.tensor(made.matrix())
    return bool((model.kept & ~S).sum() == 0 and model.kept.any(-1).all())


CLEANERS: dict[str, tuple[Callable[[], Any], Expected]] = {
    "keeps all": (
        lambda: Keeping(lambda p, S: S),
        right(lambda model: bool((model.kept == torch.tensor(made.matrix())).all())),
    ),
    "returns None": (lambda: Keeping(lambda p, S: None), error("keep", "leaner", "eeping")),
    "returns nothing": (
        lambda: Keeping(lambda p, S: S & False),
        either("keep", "leaner", "eeping", "candidate", "loss", check=subset),
    ),
    "adds candidates": (
        lambda: Keeping(lambda p, S: S | True),
        either("keep", "leaner", "eeping", "candidate", check=subset),
    ),
    "returns numbers": (lambda: Keeping(lambda p, S: S.float()), error("keep", "leaner", "eeping", "bool")),
    "returns another shape": (lambda: Keeping(lambda p, S: S[..., :2]), error("keep", "leaner", "eeping", "shape")),
    "returns NumPy": (lambda: Keeping(lambda p, S: S.numpy()), error("keep", "leaner", "eeping")),
    "changes S": (
        lambda: Keeping(lambda p, S: S.zero_() | True),
        either(
            "keep",
            "leaner",
            "eeping",
            "candidate",
            check=lambda model: bool((model.kept == torch.tensor(made.matrix())).all()),
        ),
    ),
    "raises": (lambda: Keeping(lambda p, S: _raise(KeyError(BUG))), OWN_ERROR),
}


def cases() -> Iterator[Case]:
    """Yield the cases."""
    for name, (make, expected) in NETS.items():
        yield Case(FAMILY, f"a network that {name}", lambda make=make: _caught(lambda: made.fit(net=make)), expected)
    for name, (method, expected) in METHODS.items():
        yield Case(
            FAMILY,
            f"a method whose {name}",
            lambda method=method: _caught(lambda: _predicted(made.train(method=method()))),
            expected,
        )
    for name, (cleaner, expected) in CLEANERS.items():
        yield Case(
            FAMILY,
            f"a cleaner that {name}",
            lambda cleaner=cleaner: _caught(lambda: made.train(cleaner=cleaner(), recipe=made.recipe(epochs=2))),
            expected,
        )
    factories: dict[str, tuple[Any, Expected]] = {
        "raises": (lambda: _raise(KeyError(BUG)), OWN_ERROR),
        "returns the same module each time": (_shared_module(), either("net", check=finite)),
        "needs arguments": (lambda width: nn.Linear(width, 3), error("net", "width")),
        "is a class with arguments": (nn.Linear, error("net", "in_features")),
    }
    for name, (factory, expected) in factories.items():
        yield Case(
            FAMILY,
            f"a network factory that {name}",
            lambda factory=factory: _caught(lambda: made.fit(net=factory)),
            expected,
        )


def _caught(act: Callable[[], Any]) -> Any:
    """Return what a call returns, or the error that the user's own code raised."""
    try:
        return act()
    except Exception as wrong:
        if BUG in str(wrong):
            return wrong
        raise


def _predicted(model: Any) -> Any:
    model.predict(made.features())
    return model
