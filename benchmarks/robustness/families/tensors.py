"""Functions of tensors, in `candidly.metrics`, `candidly.conformal` and `candidly.engine`: wrong types and shapes."""

import inspect
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch

import candidly
from benchmarks.robustness import made
from benchmarks.robustness.case import Case, either, error, right
from candidly import conformal, metrics

FAMILY = "tensors"

P = torch.tensor([[0.5, 0.25, 0.25], [0.125, 0.75, 0.125], [0.25, 0.25, 0.5], [1.0, 0.0, 0.0]])
S = torch.tensor([[True, True, False], [False, True, False], [True, False, True], [True, True, True]])
Y = torch.tensor([0, 1, 2, 0])
SCORES, COUNTS = torch.tensor([[0.1, 0.2, 0.5]]), torch.tensor([3])

# Good arguments by parameter name.
GOOD: Mapping[str, Any] = {
    "p": P,
    "S": S,
    "y": Y,
    "sets": S,
    "labels": Y,
    "z": P.log().clamp(min=-9),
    "q": P,
    "confidence": P.amax(-1),
    "errors": Y > 0,
    "before": S,
    "after": S,
    "p_values": P,
    "alphas": torch.tensor([0.1, 0.2]),
    "log_p": P.log(),
    "u": P.amax(-1, keepdim=True),
    "valid": torch.ones(4, dtype=torch.bool),
    "temperatures": (1.0, 2.0),
    "temperature": 2.0,
    "dtype": torch.float32,
}
# Functions whose good arguments differ, and arguments that are checked in other ways.
OTHER: Mapping[str, Mapping[str, Any]] = {
    "cross_p_values": {"scores": SCORES, "counts": COUNTS, "conformity": P[None]},
    "p_values": {"scores": SCORES, "counts": COUNTS, "conformity": P[None]},
    "smoothed_p_values": {"scores": SCORES, "counts": COUNTS, "conformity": P[None], "u": P[None, :, :1]},
    "ranks": {"scores": SCORES, "conformity": P[None]},
    "sort_scores": {"scores": SCORES, "valid": SCORES > 0.1},
    "with_ends": {"scores": SCORES},
    "remark_level": {"alpha": 0.1, "error": torch.tensor(0.1), "m": torch.tensor(10)},
    "p_values_by_rank": {"most": 3, "counts": COUNTS, "dtype": torch.float32},
    "fit_candidate_probabilities": {"p": P[None], "S": S[None], "valid": torch.ones(1, 4, dtype=torch.bool)},
}
_LEFT_OUT = {"blocks", "TEMPERATURES"}  # helpers without parameters to check
FUNCTIONS: tuple[Callable[..., Any], ...] = (
    *(getattr(metrics, name) for name in metrics.__all__),
    *(getattr(conformal, name) for name in conformal.__all__ if name not in _LEFT_OUT),
    *(candidly.masked_softmax, candidly.soft_ce, candidly.candidate_nll, candidly.uniform_weights),
    conformal.blocks,
)

WRONG: Mapping[str, Callable[[Any], Any]] = {
    "a list": lambda tensor: tensor.tolist(),
    "a NumPy array": lambda tensor: tensor.numpy(),
    "None": lambda tensor: None,
    "too few rows": lambda tensor: tensor[..., :1, :2] if tensor.ndim > 1 else tensor[:2],
}

CONVERTIBLE = ("a list", "a NumPy array")  # may be accepted


def cases() -> Iterator[Case]:
    """Yield a case for every function, tensor parameter and wrong value."""
    for function in FUNCTIONS:
        if function is conformal.blocks:
            continue
        arguments = good_arguments(function)
        for parameter, value in arguments.items():
            for label, change in WRONG.items():
                if not isinstance(value, torch.Tensor) or (label == "too few rows" and _is_alone(arguments, parameter)):
                    continue
                words = (parameter, *_ALIASES.get(parameter, ()))
                yield Case(
                    FAMILY,
                    f"{function.__module__.split('.')[1]}.{function.__name__}({parameter}={label})",
                    _call(function, arguments | {parameter: change(value)}),
                    either(*words, check=_equals(function, arguments)) if label in CONVERTIBLE else error(*words),
                )
    yield from _values()


def _call(function: Callable[..., Any], arguments: Mapping[str, Any]) -> Callable[[], Any]:
    return lambda: _listed(function(**arguments))


def _equals(function: Callable[..., Any], arguments: Mapping[str, Any]) -> Callable[[Any], bool]:
    """Return a check that a result has the values of the result for good arguments."""
    return lambda result: repr(_plain(result)) == repr(_plain(_listed(function(**arguments))))


def _plain(result: Any) -> Any:
    return [_plain(one) for one in result] if isinstance(result, (list, tuple)) else torch.as_tensor(result).tolist()


_ALIASES = {"y": ("labels",), "S": ("sets", "candidates"), "sets": ("shape",), "p": ("probabilities",)}


def good_arguments(function: Callable[..., Any]) -> dict[str, Any]:
    """Return good arguments of a function, by the names of its parameters; parameters with defaults are left out."""
    own = OTHER.get(function.__name__, {})
    found = {}
    for name, parameter in inspect.signature(function).parameters.items():
        if parameter.default is inspect.Parameter.empty:
            found[name] = own[name] if name in own else GOOD[name]
    return found


def _is_alone(arguments: Mapping[str, Any], parameter: str) -> bool:
    """Return whether no other argument has the same rows, or a single row would broadcast by design."""
    others = [one for name, one in arguments.items() if name != parameter and isinstance(one, torch.Tensor)]
    return (
        not others
        or "u" in arguments
        or parameter in ("u", "alphas", "valid", "error", "m", "counts", "scores", "conformity")
    )


def _listed(result: Any) -> Any:
    return list(result) if hasattr(result, "__next__") else result


def _values() -> Iterator[Case]:
    numbers = {
        "calibration_error(bins=0)": lambda: metrics.calibration_error(P, Y, bins=0),
        "calibration_error(bins=-1)": lambda: metrics.calibration_error(P, Y, bins=-1),
        "calibration_error(bins=2.5)": lambda: metrics.calibration_error(P, Y, bins=2.5),
        "calibration_error(bins=text)": lambda: metrics.calibration_error(P, Y, bins="15"),
        "pruning_f(beta=NaN)": lambda: metrics.pruning_f(S, S, Y, beta=float("nan")),
        "pruning_f(beta=-1)": lambda: metrics.pruning_f(S, S, Y, beta=-1),
        "pruning_f(beta=text)": lambda: metrics.pruning_f(S, S, Y, beta="x"),
        "candidate_probabilities(temperature=0)": lambda: conformal.candidate_probabilities(P.log(), S, 0),
        "candidate_probabilities(temperature=NaN)": lambda: conformal.candidate_probabilities(P.log(), S, float("nan")),
        "candidate_probabilities(temperature=text)": lambda: conformal.candidate_probabilities(P.log(), S, "1"),
        "candidate_log_odds(temperatures=0)": lambda: list(conformal.candidate_log_odds(P.log(), S, (0.0,))),
        "candidate_log_odds(temperatures=number)": lambda: list(conformal.candidate_log_odds(P.log(), S, 1.0)),
        "accuracy(y of floats)": lambda: metrics.accuracy(P, Y + 0.5),
        "accuracy(y as column)": lambda: metrics.accuracy(P, Y[:, None]),
        "contains(labels of floats)": lambda: metrics.contains(S, Y + 0.5),
        "coverage(y as matrix)": lambda: metrics.coverage(S, S),
        "covered(S of numbers)": lambda: metrics.covered(P, P),
    }
    words = ("bins", "beta", "temperature", "y", "labels", "S", "p ", "sets", "probabilities")
    for name, act in numbers.items():
        yield Case(
            FAMILY,
            f"metrics.{name}" if hasattr(metrics, name.split("(")[0]) else f"conformal.{name}",
            act,
            error(*words),
        )
    undefined = either("rows", check=lambda mean: bool(mean.isnan()))
    yield Case(FAMILY, "metrics.accuracy of no rows", lambda: metrics.accuracy(P[:0], Y[:0]), undefined)
    yield Case(FAMILY, "metrics.covering_rate of no rows", lambda: metrics.covering_rate(P[:0], S[:0]), undefined)
    yield Case(
        FAMILY,
        "Model.predict on integers",
        lambda: made.trained().predict([[1, 2, 3]]),
        right(lambda p: bool(p.isfinite().all())),
    )
