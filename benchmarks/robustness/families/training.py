"""Training under odd circumstances: divergence, modes of torch, threads, and limits."""

import contextlib
import threading
import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch

import candidly
from benchmarks.robustness import made
from benchmarks.robustness.case import Case, either, error, right

FAMILY = "training"


def removes_nothing(classifier: Any) -> bool:
    """Check that cleaning after a failed training keeps every true label, and that results are finite."""
    kept = classifier.candidates_.matrix
    true = made.truth()
    S = made.matrix()
    lost = (S[np.arange(made.ROWS), true] & ~kept[np.arange(made.ROWS), true]).mean()
    return bool(np.isfinite(classifier.candidate_proba_).all()) and lost <= 0.06


def diverging(lr: float, method: str = "proden", **options: Any) -> Any:
    """Fit with a learning rate that is too large."""
    return made.fit(method=method, **({"lr": lr, "max_epochs": 10} | options))


def finite_history(model: Any) -> bool:
    """Check that a model's history and predictions are finite."""
    return bool(np.isfinite(model.history["loss"]).all() and model.predict(made.features()).isfinite().all())


def _under(context: Any, **options: Any) -> Any:
    with context:
        return made.fit(**options)


def _dtype() -> Any:
    torch.set_default_dtype(torch.float64)
    try:
        return made.fit()
    finally:
        torch.set_default_dtype(torch.float32)


def _device() -> Any:
    with torch.device("meta"):
        return made.fit()


def _in_threads(count: int) -> Any:
    found: list[Any] = []

    def work() -> None:
        try:
            found.append(made.fit())
        except BaseException as wrong:
            found.append(wrong)

    threads = [threading.Thread(target=work) for _ in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return all(made.same(one, made.fitted()) for one in found)


def _predict_in_threads() -> bool:
    expected = made.fitted().predict_proba(made.features())
    wrong: list[Any] = []

    def work() -> None:
        for i in range(40):
            row = made.features()[i : i + 1]
            if not made.same(made.fitted().predict_proba(row), expected[i : i + 1]):
                wrong.append(i)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return not wrong and made.same(made.fitted().predict_proba(made.features()), expected)


def _blocks(classes: int) -> bool:
    """Return whether probabilities and p-values of rows do not depend on their position and their neighbours."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(200, 3))
    y = [[f"c{i % classes:02}"] for i in range(200)]
    classifier = made.fit(X, y, folds=2, max_epochs=1)
    p, q = classifier.predict_proba(X), classifier.predict_p(X)
    orders = [np.arange(200)[::-1], rng.permutation(200), np.arange(65), np.arange(64), np.arange(63)]
    same = all(
        made.same(classifier.predict_proba(X[o]), p[o]) and made.same(classifier.predict_p(X[o]), q[o]) for o in orders
    )
    alone = all(made.same(classifier.predict_proba(X[i : i + 1])[0], p[i]) for i in range(0, 200, 17))
    return same and alone


def _stopped() -> Any:
    stop = threading.Event()
    stop.set()
    try:
        made.train(stop=stop, recipe=made.recipe(epochs=5))
    except KeyboardInterrupt:  # as documented
        return True
    return False


def cases() -> Iterator[Case]:
    """Yield the cases."""
    words = ("finite", "learning rate", "lr", "diverge")
    for method in candidly.METHODS:
        for lr in (1e30, 1e10, 1e5):
            yield Case(
                FAMILY,
                f"fit {method} with lr={lr:g}",
                lambda method=method, lr=lr: diverging(lr, method),
                either(*words, check=removes_nothing),
            )
        yield Case(
            FAMILY,
            f"the engine's {method} with max_lr=1e30",
            lambda method=method: made.train(
                method=candidly.METHODS[method](), recipe=made.recipe(epochs=3, max_lr=1e30)
            ),
            either(*words, check=finite_history),
        )
    for cleaner in (None, "conf", "clsp", "conformal"):
        yield Case(
            FAMILY,
            f"fit with cleaner={cleaner} and lr=1e30",
            lambda cleaner=cleaner: diverging(1e30, cleaner=cleaner),
            either(*words, check=removes_nothing),
        )
    for lr in (3.0, 10.0, 100.0):
        for seed in range(3):
            yield Case(
                FAMILY,
                f"fit with lr={lr:g}, seed {seed}",
                lambda lr=lr, seed=seed: diverging(lr, random_state=seed),
                either(*words, check=removes_nothing),
            )
    yield Case(
        FAMILY,
        "a huge weight decay",
        lambda: made.fit(weight_decay=1e30),
        either("weight_decay", *words, check=removes_nothing),
    )
    yield Case(
        FAMILY,
        "Problem.of with features of 1e30",
        lambda: made.train(made.problem(X=made.features() * 1e30)),
        either("X", *words, check=finite_history),
    )
    yield Case(
        FAMILY,
        "Problem.of with a scale of 1e30",
        lambda: made.train(made.problem(scale=1e30)),
        either("scale", *words, check=finite_history),
    )

    plain = right(lambda classifier: made.same(classifier, made.fitted()))
    modes: dict[str, Any] = {
        "torch.no_grad": lambda: _under(torch.no_grad()),
        "torch.enable_grad": lambda: _under(torch.enable_grad()),
        "a default dtype of float64": _dtype,
        "NumPy's errors": lambda: _under(np.errstate(all="raise")),
        "warnings as errors": lambda: _under(_strict()),
    }
    for name, act in modes.items():
        yield Case(FAMILY, f"fit under {name}", act, plain)
    yield Case(
        FAMILY,
        "fit under torch.inference_mode",
        lambda: _under(torch.inference_mode()),
        either("inference_mode", check=lambda c: made.same(c, made.fitted())),
    )
    yield Case(
        FAMILY,
        "fit under autocast",
        lambda: _under(torch.autocast("cpu")),
        either("autocast", check=lambda c: made.same(c, made.fitted())),
    )
    yield Case(
        FAMILY,
        "fit under a default device of meta",
        _device,
        either("device", "meta", check=lambda c: made.same(c, made.fitted())),
    )
    yield Case(FAMILY, "fit under detect_anomaly", lambda: _under(torch.autograd.detect_anomaly(check_nan=True)), plain)
    yield Case(FAMILY, "fit under deterministic algorithms", lambda: _deterministic(), plain)
    yield Case(FAMILY, "fit does not touch torch's seed", lambda: _seeds(), right(lambda same: same))
    yield Case(FAMILY, "fit with the same seed twice", lambda: made.fit(), plain)
    yield Case(FAMILY, "fit again after a refusal", lambda: _after_refusal(), plain)
    yield Case(FAMILY, "a refused fit leaves the fitted classifier", lambda: _refused_fit(), right(lambda same: same))
    yield Case(FAMILY, "fits in four threads", lambda: _in_threads(4), right(lambda same: same))
    yield Case(FAMILY, "predictions in four threads", _predict_in_threads, right(lambda same: same))
    for classes in (2, 3, 5, 6, 7, 9, 10, 11, 17, 33):
        yield Case(
            FAMILY,
            f"rows in another position, {classes} classes",
            lambda classes=classes: _blocks(classes),
            right(lambda same: same),
        )
    yield Case(FAMILY, "a stop event that is set before", _stopped, right(lambda stopped: stopped))
    yield Case(
        FAMILY,
        "two rows",
        lambda: made.fit(made.features()[:2], [["cat"], ["dog"]]),
        either("rows", check=lambda c: len(c.candidates_) == 2),
    )
    yield Case(
        FAMILY,
        "two rows and five folds",
        lambda: made.fit(made.features()[:2], [["cat"], ["dog"]], folds=5),
        either("folds", "rows", check=lambda c: len(c.candidates_) == 2),
    )
    yield Case(
        FAMILY,
        "more folds than rows",
        lambda: made.fit(made.features()[:12], made.names()[:12], folds=500),
        either("folds", check=lambda c: made.same(c, made.fit(made.features()[:12], made.names()[:12], folds=12))),
    )
    yield Case(FAMILY, "rows that are all equal", lambda: made.fit(np.ones((made.ROWS, 3))), error("same features"))
    yield Case(
        FAMILY,
        "200 classes for 120 rows",
        lambda: made.fit(y=[[i % 60] for i in range(120)], classes=range(200)),
        either("class", check=lambda c: len(c.classes_) == 200),
    )
    yield Case(
        FAMILY,
        "early stopping without held-out rows",
        lambda: made.fit(folds=1, validation_fraction=0, early_stopping=True),
        error("early_stopping"),
    )
    yield Case(
        FAMILY,
        "one fold of all rows",
        lambda: made.fit(folds=1, validation_fraction=0.999),
        either("validation_fraction", check=lambda c: np.isfinite(c.candidate_proba_).all()),
    )


def _strict() -> Any:
    return warnings.catch_warnings(action="error")


def _deterministic() -> Any:
    torch.use_deterministic_algorithms(True)
    try:
        return made.fit()
    finally:
        torch.use_deterministic_algorithms(False)


def _legacy_state() -> Any:
    return np.random.get_state()[1].copy()  # noqa: NPY002, which users may depend on


def _seeds() -> bool:
    state, numpy_state = torch.get_rng_state(), _legacy_state()
    made.fit()
    return made.same(state, torch.get_rng_state()) and made.same(numpy_state, _legacy_state())


def _after_refusal() -> Any:
    classifier = candidly.PartialLabelClassifier(**made.SMALL)
    with contextlib.suppress(ValueError):
        classifier.fit(made.features(), made.names()[:-1])
    return classifier.fit(made.features(), made.names())


def _refused_fit() -> bool:
    classifier = made.fit()
    before = classifier.predict_proba(made.features())
    for X, y in ((made.features(), made.names()[:-1]), (made.features() * np.inf, made.names()), (None, None)):
        try:
            classifier.fit(X, y)
        except (ValueError, TypeError):
            continue
        return False
    return made.same(before, classifier.predict_proba(made.features()))
