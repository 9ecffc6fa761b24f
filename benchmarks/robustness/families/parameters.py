"""Parameters of public functions and constructors: values of wrong types and out of range, and odd ones that are right.

`TARGETS` lists the functions with the kind of every parameter; `KINDS` lists the values to try for each kind. Cases are
all combinations. `uncovered` walks the public API and finds the parameters that are in no table.
"""

import copy
import decimal
import fractions
import inspect
import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from sklearn.naive_bayes import GaussianNB
from sklearn.preprocessing import StandardScaler
from sklearn.svm import LinearSVC

import candidly
from benchmarks.robustness import made
from benchmarks.robustness.case import Case, Expected, either, error, right
from candidly import bench, cleaning, data, encoders, estimator, report, review, tables
from candidly.data import corrupt

FAMILY = "parameters"
SAME = object()
"""Marks a value that must be accepted like the plain value beside it."""


class Anything:
    """An object of an unrelated class."""

    def __repr__(self) -> str:
        return "Anything()"


@dataclass(frozen=True)
class Value:
    """A value to try: `like` is the plain value that it must be equivalent to, if it is accepted."""

    label: str
    value: Any
    like: Any = SAME  # no equivalent: must be refused
    may_refuse: bool = True


def bad(label: str, value: Any) -> Value:
    """Return a value that must be refused."""
    return Value(label, value)


def odd(label: str, value: Any, like: Any) -> Value:
    """Return a value that may be refused; if it is accepted, it must act like another one."""
    return Value(label, value, like)


def good(label: str, value: Any, like: Any) -> Value:
    """Return a value that must be accepted and act like another one."""
    return Value(label, value, like, may_refuse=False)


_OBJECTS = (bad("an object", Anything()), bad("a list", [1, 2]), bad("a dict", {"a": 1}))
_NOT_NUMBERS = (*_OBJECTS, bad("text", "1"), bad("words", "many"), bad("bytes", b"1"), bad("complex", 1j))
_NOT_FINITE = (bad("NaN", math.nan), bad("numpy NaN", np.float64("nan")))
NONE = bad("None", None)


def integers(plain: int, least: int, none: bool = False) -> tuple[Value, ...]:
    """Return values for an integer of at least `least`."""
    values = [
        *_NOT_NUMBERS,
        *_NOT_FINITE,
        bad("infinity", math.inf),
        bad("a fraction", plain + 0.5),
        bad("below the minimum", least - 1),
        bad("far below", -(10**9)),
        bad("an array of two", np.array([plain, plain])),
        good("numpy int64", np.int64(plain), plain),
        good("numpy uint8", np.uint8(plain), plain),
        odd("a float", float(plain), plain),
        odd("0-d array", np.array(plain), plain),
        odd("0-d tensor", torch.tensor(plain), plain),
        odd("True", True, 1),
    ]
    return tuple(values if none else [*values, NONE])


def limits(plain: int, least: int) -> tuple[Value, ...]:
    """Return values for an integer that is a limit or a start, so that a huge one means never."""
    return (*integers(plain, least), odd("a billion", 10**9, 1000), odd("beyond 64 bits", 2**70, 1000))


HUGE = (bad("10,000,000", 10**7), bad("a billion", 10**9), bad("beyond 64 bits", 2**70))


def shares(plain: float, zero: bool = False, one: bool = False) -> tuple[Value, ...]:
    """Return values for a number between 0 and 1; `plain` must be exact in float16."""
    values = [
        *_NOT_NUMBERS,
        *_NOT_FINITE,
        NONE,
        bad("infinity", math.inf),
        bad("negative", -plain),
        bad("above 1", 1.5),
        bad("percent", 50),
        bad("an array of two", np.array([plain, plain])),
        good("numpy float64", np.float64(plain), plain),
        good("numpy float32", np.float32(plain), plain),
        odd("Fraction", fractions.Fraction(plain), plain),
        odd("Decimal", decimal.Decimal(plain), plain),
        odd("0-d array", np.array(plain), plain),
    ]
    values += [] if zero else [bad("0", 0), bad("False", False)]
    values += [] if one else [bad("1", 1), bad("True", True)]
    return tuple(values)


def positives(plain: float, zero: bool = False) -> tuple[Value, ...]:
    """Return values for a finite number above 0."""
    values = [
        *_NOT_NUMBERS,
        *_NOT_FINITE,
        NONE,
        bad("infinity", math.inf),
        bad("minus infinity", -math.inf),
        bad("negative", -plain),
        bad("an array of two", np.array([plain, plain])),
        bad("an integer beyond double precision", 10**400),
        good("numpy float64", np.float64(plain), plain),
        good("numpy float32", np.float32(plain), plain),
        odd("Fraction", fractions.Fraction(plain), plain),
        odd("0-d array", np.array(plain), plain),
    ]
    return tuple(values if zero else [*values, bad("0", 0)])


def booleans(plain: bool) -> tuple[Value, ...]:
    """Return values for a boolean: texts and numbers such as 2 would silently count as true."""
    return (
        *_OBJECTS,
        bad("'no'", "no"),
        bad("'False'", "False"),
        bad("''", ""),
        bad("2", 2),
        bad("0.5", 0.5),
        bad("NaN", math.nan),
        bad("an array", np.array([True, False])),
        good("numpy bool", np.bool_(plain), plain),
        odd("0 or 1", int(plain), plain),
        odd("None", None, False),
    )


def choices(plain: str, none: bool = False) -> tuple[Value, ...]:
    """Return values for one of a few words."""
    values = [
        *_OBJECTS,
        bad("unknown", "nonsense"),
        bad("empty", ""),
        bad("a number", 3),
        bad("NaN", math.nan),
        bad("in a list", [plain]),
        bad("bytes", plain.encode()),
        bad("control characters", f"{plain}\x1b[31m\n"),
        bad("10,000 characters", "x" * 10_000),
        odd("blanks around", f" {plain} ", plain),
        odd("upper case", plain.upper(), plain),
        good("numpy str", np.str_(plain), plain),
    ]
    return tuple(values if none else [*values, NONE])


def texts_(plain: str, none: bool = False, empty: bool = False) -> tuple[Value, ...]:
    """Return values for a text."""
    values = [*_OBJECTS, bad("a number", 3), bad("NaN", math.nan), bad("bytes", plain.encode()), bad("True", True)]
    values += [] if none else [NONE]
    values += [] if empty else [bad("empty", "")]
    return (*values, good("numpy str", np.str_(plain), plain))


def seeds_(plain: int) -> tuple[Value, ...]:
    """Return values for a seed."""
    return (*integers(plain, 0), bad("a generator", np.random.default_rng(0)))


def paths(exists: bool) -> tuple[Value, ...]:
    """Return values for a path."""
    values = (
        bad("None", None),
        bad("a number", 3.5),
        bad("an object", Anything()),
        bad("a list", ["a"]),
        bad("empty", ""),
        bad("a null character", "a\0b"),
        bad("too long", "x" * 5000),
    )
    return (*values, bad("missing", "nowhere/at/all")) if exists else values


DEVICES = (
    *_OBJECTS,
    bad("unknown", "abacus"),
    bad("empty", ""),
    bad("a number", 3),
    bad("mps", "mps"),
    bad("xpu", "xpu"),
    bad("meta", "meta"),
    bad("None", None),
    bad("cuda 99", "cuda:99"),
    bad("tpu", "tpu"),
    bad("NaN", math.nan),
    good("torch.device", torch.device("cpu"), "cpu"),
    odd("upper case", "CPU", "cpu"),
    odd("cpu:0", "cpu:0", "cpu"),
)
if not torch.cuda.is_available():
    DEVICES = (*DEVICES, bad("cuda without CUDA", "cuda"))

METHODS = (
    bad("unknown", "prodn"),
    bad("None", None),
    bad("a class", candidly.Proden),
    bad("a number", 3),
    bad("a list", ["proden"]),
    bad("an object", Anything()),
    bad("a cleaner", candidly.Conformal()),
    odd("upper case", "PRODEN", "proden"),
    good("an instance", candidly.Proden(), "proden"),
)
CLEANERS = (
    bad("unknown", "conformla"),
    bad("a class", candidly.Conformal),
    bad("a number", 3),
    bad("a list", ["conformal"]),
    bad("an object", Anything()),
    bad("a method", candidly.Proden()),
    bad("False", False),
    odd("'none'", "none", None),
    good("an instance", candidly.Conformal(), "conformal"),
)
NETS = (
    bad("unknown", "mpl"),
    bad("None", None),
    bad("a number", 3),
    bad("a module", torch.nn.Linear(3, 3)),
    bad("an image network for a table", "resnet9"),
    bad("a list", ["mlp"]),
    odd("upper case", "MLP", "mlp"),
)
CLASS_LISTS = (
    bad("a text", "cat"),
    bad("a number", 3),
    bad("too few", ["cat", "dog"]),
    bad("twice", ["cat", "cat", "dog", "emu"]),
    bad("None inside", ["cat", "dog", None]),
    bad("NaN inside", ["cat", "dog", math.nan]),
    bad("empty name", ["cat", "dog", ""]),
    bad("lists inside", [["cat"], ["dog"], ["emu"]]),
    bad("an object", Anything()),
    bad("no classes", []),
    bad("other case", ["Cat", "Dog", "Emu"]),
    odd("blanks", ["cat ", "dog", "emu"], list(made.CLASSES)),
    bad("bytes", [b"cat", b"dog", b"emu"]),
    bad("True", True),
    good("a tuple", made.CLASSES, list(made.CLASSES)),
    good("an array", np.array(made.CLASSES), list(made.CLASSES)),
)
ANSWERS = (
    bad("a text", "cat"),
    bad("a number", 3),
    bad("too few", ["cat"]),
    bad("an unknown class", {0: "owl"}),
    bad("a class in another case", {0: "CAT"}),
    bad("a list of names", {0: ["cat", "dog"]}),
    bad("a row that is not there", {10**6: "cat"}),
    bad("a negative row", {-1: "cat"}),
    bad("a row by text", {"0": "cat"}),
    bad("an object", Anything()),
    good("an integer of numpy", {np.int64(0): "cat"}, {0: "cat"}),
    good("a name of numpy", {0: np.str_("cat")}, {0: "cat"}),
)
CHECKED = (
    *ANSWERS,
    bad("no row", {}),
    good("one per row", ["cat", *[None] * (made.ROWS - 1)], {0: "cat"}),
)

LEVELS = (
    bad("a number", 0.1),
    bad("a text", "0.1,0.2"),
    bad("None", None),
    bad("none", []),
    bad("0", [0.0, 0.1]),
    bad("1", [1.0]),
    bad("NaN", [0.1, math.nan]),
    bad("texts", ["0.1"]),
    bad("nested", [[0.1]]),
    bad("an object", Anything()),
    bad("negative", [-0.1]),
    bad("100,000 levels", [0.5] * 100_000),
    bad("None inside", [0.1, None]),
    good("an array", np.array([0.25, 0.5]), [0.25, 0.5]),
    good("a tuple", (0.25, 0.5), [0.25, 0.5]),
    odd("a generator", None, None),
)[:-1]
SEED_LISTS = (
    bad("a number", 3),
    bad("None", None),
    bad("none", []),
    bad("negative", [-1]),
    bad("a fraction", [0.5]),
    bad("texts", ["0"]),
    bad("NaN", [math.nan]),
    bad("None inside", [None]),
    bad("an object", Anything()),
    good("an array", np.array([0, 1]), [0, 1]),
    good("a range", range(2), [0, 1]),
)


_PICTURES = np.random.default_rng(0).integers(0, 256, (3, 8, 8, 3), dtype=np.uint8)


@dataclass(frozen=True)
class Target:
    """A function with its good arguments, and the values to try for each parameter.

    Attributes
    ----------
    call : callable
        Takes the parameters by keyword.
    covers : tuple of callables
        The public functions whose parameters these are.
    values : mapping
        The values to try by parameter.
    names : mapping
        Words that the error must contain instead of the parameter's name.
    seconds : float
    """

    call: Callable[..., Any]
    covers: Callable[..., Any]
    values: Mapping[str, tuple[Value, ...]]
    names: Mapping[str, tuple[str, ...]] = field(default_factory=dict)


def _certified(**given: Any) -> Any:
    """Certify with a plan; by default, with right answers."""
    classifier = copy.copy(made.fitted())
    plan = classifier.plan_verification(60, alpha=0.125)
    names = [made.CLASSES[made.truth()[row]] for row in plan.rows]
    return classifier.certify(**({"answers": names} | given)).to_json()


def _conformal(**settings: Any) -> Any:
    return made.train(cleaner=candidly.Conformal(**settings))


def _with_files(call: Callable[..., Any]) -> Callable[..., Any]:
    """Call with the good files in the current folder."""

    def act(**given: Any) -> Any:
        made.put("rows.csv", made.csv())
        made.put("votes.csv", made.csv(made.votes()))
        made.put("numbers.csv", made.csv(made.columns(id=None, colour=None)))
        return call(**given)

    return act


def _engine_fit(**given: Any) -> Any:
    """Train with the engine; patience needs held-out rows."""
    if "patience" in given:
        given |= {"problem": made.problem(rows=[range(90)]), "held_out": [range(90, 120)]}
    return candidly.fit(
        **({"problem": made.problem(), "method": candidly.Proden(), "recipe": made.recipe(), "device": "cpu"} | given)
    )


LIKE = (bad("a text", "tags"), bad("a dict", {"candidates": "tags"}), bad("an object", Anything()))
TEXTS = (bad("a text", "size"), bad("a number", 3), bad("None", None), bad("an object", Anything()))

_TARGETS: dict[str, Target] = {
    "PartialLabelClassifier": Target(
        made.fit,
        candidly.PartialLabelClassifier,
        {
            "method": METHODS,
            "cleaner": CLEANERS,
            "net": NETS,
            "base": (
                bad("a class", GaussianNB),
                bad("an object", Anything()),
                bad("a number", 3),
                bad("an unknown name", "nonsense"),
                bad("empty", ""),
                bad("without probabilities", LinearSVC()),
                bad("a transformer", StandardScaler()),
                good("None", None, None),
                good("numpy str", np.str_("logistic-regression"), "logistic-regression"),
            ),
            "rounds": integers(2, 1),
            "quality": choices("best"),
            "members": (*integers(2, 1, none=True), *HUGE),
            "folds": integers(3, 1),
            "alpha": shares(0.25),
            "max_epochs": (*integers(2, 1, none=True), *HUGE[1:]),
            "lr": positives(0.0625),
            "batch_size": (*integers(16, 2, none=True), odd("a billion", 10**9, 1000)),
            "weight_decay": positives(0.0625, zero=True),
            "early_stopping": booleans(False),
            "force_cleaning": booleans(False),
            "n_iter_no_change": limits(3, 1),
            "validation_fraction": shares(0.25, zero=True),
            "classes": CLASS_LISTS,
            "separator": (
                *_OBJECTS,
                bad("a number", 3),
                bad("empty", ""),
                bad("bytes", b"|"),
                bad("True", True),
                bad("for lists of names", "|"),
            ),
            "max_categories": limits(20, 1),
            "n_components": integers(20, 1, none=True),
            "device": DEVICES,
            "random_state": (
                *_NOT_NUMBERS,
                *_NOT_FINITE,
                bad("negative", -1),
                bad("a fraction", 0.5),
                bad("beyond 64 bits", 2**70),
                bad("a generator", np.random.default_rng(0)),
                good("numpy int64", np.int64(3), 3),
                good("numpy uint32", np.uint32(3), 3),
                odd("True", True, 1),
                odd("0-d array", np.array(3), 3),
            ),
            "verbose": (
                *_OBJECTS,
                bad("'no'", "no"),
                bad("NaN", math.nan),
                odd("numpy bool", np.bool_(False), False),
            ),
        },
        {"max_epochs": ("epochs",), "classes": ("class",)},
    ),
    "predict": Target(
        lambda **given: made.fitted().predict(made.features(), **given),
        candidly.PartialLabelClassifier.predict,
        {"max_risk": tuple(value for value in shares(0.25) if value is not NONE)},
    ),
    "predict_p": Target(
        lambda **given: made.fitted().predict_p(made.features(), **given),
        candidly.PartialLabelClassifier.predict_p,
        {"kind": choices("split"), "score": choices("aps"), "candidate": choices("mean"), "smooth": booleans(True)},
    ),
    "predict_set": Target(
        lambda **given: made.fitted().predict_set(made.features(), **given),
        candidly.PartialLabelClassifier.predict_set,
        {
            "alpha": shares(0.25),
            "kind": choices("split"),
            "score": choices("aps"),
            "candidate": choices("mean"),
            "smooth": booleans(True),
        },
    ),
    "predict_all": Target(
        lambda **given: made.fitted().predict_all(made.features()[:5], **given),
        candidly.PartialLabelClassifier.predict_all,
        {
            "rules": (
                bad("a text", "split"),
                bad("texts", ["split"]),
                bad("a number", 3),
                bad("dicts", [{"kind": "split"}]),
                bad("None", None),
                bad("None inside", [None]),
                bad("an object", Anything()),
                odd("one rule", estimator.Rule("split"), [estimator.Rule("split")]),
                good("a tuple", (estimator.Rule("split"),), [estimator.Rule("split")]),
            )
        },
        {"rules": ("rules", "rule", "Rule")},
    ),
    "plan_verification": Target(
        lambda **given: copy.copy(made.fitted()).plan_verification(**({"m": 60, "alpha": 0.125} | given)).to_json(),
        candidly.PartialLabelClassifier.plan_verification,
        {
            "m": (*integers(60, 1), *HUGE),
            "alpha": shares(0.125),
            "confidence": shares(0.875),
            "seed": integers(3, 0),
            "sequential": booleans(True),
        },
    ),
    "certify": Target(
        lambda **given: _certified(**given),
        candidly.PartialLabelClassifier.certify,
        {
            "answers": (
                *ANSWERS,
                bad("None", None),
                bad("too many", ["cat"] * 500),
                good("blanks", {0: "  "}, {0: None}),
                good("NaN", {0: math.nan}, {0: None}),
                good("a question mark", {0: "?"}, {0: None}),
            ),
            "plan": (
                bad("a text", "first"),
                bad("a number", 1),
                bad("a dict", {"rows": [1]}),
                bad("an object", Anything()),
                bad(
                    "one that was not recorded",
                    cleaning.VerificationPlan(
                        rows=(0, 1),
                        alpha=0.1,
                        confidence=0.9,
                        seed=0,
                        sequential=False,
                        family="",
                        number=1,
                        n=50,
                        population=9,
                    ),
                ),
            ),
        },
        {"answers": ("answers", "answer", "row")},
    ),
    "audit": Target(
        lambda **given: made.fitted().audit(**given).to_json(),
        candidly.PartialLabelClassifier.audit,
        {
            "alphas": LEVELS,
            "y_true": (
                bad("a number", 3),
                bad("a text", "cat"),
                bad("too few", ["cat"] * 5),
                bad("a matrix", made.matrix()),
                bad("unknown classes", ["owl"] * made.ROWS),
                bad("lists", [["cat"]] * made.ROWS),
                bad("numbers for names", list(range(made.ROWS))),
                bad("an object", Anything()),
                good("an array", np.array(made.CLASSES)[made.truth()], [made.CLASSES[i] for i in made.truth()]),
            ),
            "verified": CHECKED,
        },
        {"alphas": ("alpha",), "y_true": ("y_true", "true label", "labels"), "verified": ("verified", "answer")},
    ),
    "save": Target(
        lambda **given: made.fitted().save(**({"folder": "model"} | given)),
        candidly.PartialLabelClassifier.save,
        {
            "folder": paths(exists=False),
            "more": (
                bad("a text", "more"),
                bad("None", None),
                bad("a list", [1]),
                bad("texts as content", {"a.txt": "text"}),
                bad("a path outside", {"../escaped.txt": b"x"}),
                bad("an absolute path", {"/nowhere/escaped": b"x"}),
                bad("the model itself", {"model.json": b"{}"}),
                bad("an empty name", {"": b"x"}),
                bad("a number as name", {3: b"x"}),
                bad("a null character", {"a\0b": b"x"}),
            ),
            "lean": booleans(True),
        },
        {"folder": ("folder", "path"), "more": ("more",)},
    ),
    "clean": Target(
        lambda **given: made.fitted().clean(made.features()[::-1], **({"y": made.names()[::-1]} | given)),
        candidly.PartialLabelClassifier.clean,
        {
            "y": (
                bad("a number", 3),
                bad("a text", "cat"),
                bad("None", None),
                bad("too few", made.names()[:5]),
                bad("an unknown class", [["owl"]] * made.ROWS),
                bad("another spelling", [["Cat"]] * made.ROWS),
                bad("an empty set", [[]] * made.ROWS),
                bad("a matrix of two classes", made.matrix()[:, :2]),
                bad("probabilities", made.matrix() * 0.5),
                bad("an object", Anything()),
                good("a matrix", made.matrix()[::-1], made.names()[::-1]),
                good("candidates", candidly.encode(made.names()[::-1]), made.names()[::-1]),
            )
        },
    ),
    "clean_all": Target(
        lambda **given: made.fitted().clean_all(made.features()[::-1], **given).kept,
        candidly.PartialLabelClassifier.clean_all,
        {
            "y": (
                bad("a number", 3),
                bad("too few", made.names()[:5]),
                good("a matrix", made.matrix()[::-1], made.names()[::-1]),
            )
        },
    ),
    "is_trained_on": Target(
        lambda **given: made.fitted().is_trained_on(made.features(), **given),
        candidly.PartialLabelClassifier.is_trained_on,
        {
            "y": (
                bad("a number", 3),
                bad("an unknown class", [["owl"]] * made.ROWS),
                good("a matrix", made.matrix(), made.names()),
            )
        },
    ),
    "reclean": Target(
        lambda **given: made.fit(**made.SMALL).set_params(**given).reclean().candidates_,
        candidly.PartialLabelClassifier.reclean,
        {"alpha": shares(0.25), "force_cleaning": booleans(True)},
    ),
    "export": Target(
        lambda **given: made.fitted().export(**given),
        candidly.PartialLabelClassifier.export,
        {"path": paths(False)},
        {"path": ("path", "exported")},
    ),
    "load": Target(
        lambda **given: candidly.PartialLabelClassifier.load(**({"folder": made.model()} | given)),
        candidly.PartialLabelClassifier.load,
        {
            "folder": paths(exists=True),
            "net": (
                bad("a text", "mlp"),
                bad("a number", 3),
                bad("a module", torch.nn.Linear(3, 3)),
                bad("an object", Anything()),
            ),
            "method": (
                bad("a text", "proden"),
                bad("a number", 3),
                bad("a class", candidly.Proden),
                bad("an object", Anything()),
            ),
        },
        {"folder": ("folder", "path", "model.json", "nowhere")},
    ),
    "score": Target(
        lambda **given: made.fitted().score(made.features(), made.names(), **given),
        candidly.PartialLabelClassifier.score,
        {},
    ),
    "evaluate": Target(
        lambda **given: candidly.evaluate(
            made.fitted(), made.features(), [made.CLASSES[i] for i in made.truth()], **given
        ).to_json(),
        candidly.evaluate,
        {"alphas": LEVELS, "candidate": choices("mean"), "smooth": booleans(True), "estimator": ()},
        {"alphas": ("alpha",)},
    ),
    "Rule": Target(
        estimator.Rule,
        estimator.Rule,
        {"kind": choices("split"), "score": choices("aps"), "candidate": choices("mean"), "smooth": booleans(True)},
    ),
    "Clsp": Target(
        lambda **settings: made.train(cleaner=candidly.Clsp(**settings)),
        candidly.Clsp,
        {
            "k": limits(5, 1),
            "tau": shares(0.25, zero=True, one=True),
            "features": (
                bad("a text", "X"),
                bad("a number", 3),
                bad("too few rows", made.features()[:5]),
                bad("1-D", made.features()[:, 0]),
                bad("NaN", np.where(np.arange(3) == 1, np.nan, made.features())),
                bad("texts", [["a"]] * made.ROWS),
                bad("an object", Anything()),
                good("a list", made.features().tolist(), made.features()),
            ),
        },
    ),
    "Balanced": Target(
        lambda **settings: made.train(method=candidly.Balanced(**settings)),
        candidly.Balanced,
        {"tau": shares(0.25, zero=True, one=True)},
    ),
    "Conformal": Target(
        _conformal,
        candidly.Conformal,
        {
            "rule": choices("permanent"),
            "level": choices("off_candidate_mass"),
            "alpha": tuple(value for value in shares(0.25, zero=True) if value is not NONE),
            "score": choices("mean"),
            "calibration": choices("holdout"),
            "fraction": shares(0.25),
            "warmup": limits(1, 0),
            "finite": booleans(True),
            "per_batch": booleans(True),
            "shrink": booleans(True),
            "slack": tuple(value for value in positives(0.25, zero=True) if value.label != "negative"),
            "delta": shares(0.25),
            "dkw": booleans(False),
            "stop": shares(0.25, zero=True, one=True),
        },
    ),
    "Conformal.published": Target(
        lambda **given: candidly.Conformal.published(**given),
        candidly.Conformal.published,
        {"correction": booleans(False)},
    ),
    "Crosel": Target(
        lambda **settings: made.train(method=candidly.Crosel(**settings)),
        candidly.Crosel,
        {
            "warmup": limits(1, 0),
            "confidence": shares(0.25, zero=True, one=True),
            "lambda_cr": positives(0.25, zero=True),
            "bank": choices("sweep"),
        },
    ),
    "Lws": Target(
        lambda **settings: made.train(method=candidly.Lws(**settings)),
        candidly.Lws,
        {"beta": positives(0.25, zero=True)},
    ),
    "Pico": Target(
        lambda **settings: made.train(method=candidly.Pico(**settings)),
        candidly.Pico,
        {
            "weight": positives(0.25, zero=True),
            "temperature": positives(0.25),
            "queue": integers(64, 1),
            "momentum": shares(0.25, zero=True, one=True),
            "prototype_momentum": shares(0.25, zero=True, one=True),
        },
    ),
    "Plcr": Target(
        lambda **settings: made.train(method=candidly.Plcr(**settings)),
        candidly.Plcr,
        {"weight": positives(0.25, zero=True)},
    ),
    "Pop": Target(
        lambda **settings: made.train(method=candidly.Pop(**settings)),
        candidly.Pop,
        {
            "start": limits(1, 0),
            "every": limits(2, 1),
            "theta": positives(0.25, zero=True),
            "step_size": positives(0.25, zero=True),
            "theta_end": positives(0.25, zero=True),
            "growth": choices("factor"),
        },
    ),
    "Valen": Target(
        lambda **settings: made.train(
            method=candidly.Valen(**({"warmup": 1} | settings)), recipe=made.recipe(epochs=2)
        ),
        candidly.Valen,
        {
            "warmup": limits(1, 1),
            "k": integers(2, 1),
            "beta": positives(0.25, zero=True),
            "gamma": positives(0.25, zero=True),
            "theta": positives(0.25, zero=True),
            "c": positives(0.25, zero=True),
            "c_x": positives(0.25, zero=True),
        },
    ),
    "Oracle": Target(
        lambda **settings: made.train(cleaner=candidly.Oracle(**settings)),
        candidly.Oracle,
        {
            "y": (
                bad("a text", "cat"),
                bad("None", None),
                bad("a number", 3),
                bad("too few", [0, 1]),
                bad("names", ["cat"] * made.ROWS),
                bad("floats", made.truth() + 0.5),
                bad("out of range", made.truth() + 5),
                bad("a matrix", made.matrix()),
                bad("an object", Anything()),
                good("a list", made.truth().tolist(), made.truth()),
            )
        },
        {"y": ("y", "true label", "label")},
    ),
    "Random": Target(
        lambda **settings: made.train(cleaner=candidly.Random(**settings)),
        candidly.Random,
        {
            "like": (
                bad("a text", "conformal"),
                bad("None", None),
                bad("a class", candidly.Conformal),
                bad("an object", Anything()),
                bad("a method", candidly.Proden()),
            )
        },
    ),
    "Recipe": Target(
        candidly.Recipe,
        candidly.Recipe,
        {
            "name": texts_("mine"),
            "epochs": integers(2, 1),
            "batch_size": integers(16, 2, none=True),
            "optimiser": choices("sgd"),
            "schedule": choices("constant"),
            "max_lr": positives(0.25),
            "weight_decay": positives(0.25, zero=True),
            "augment": (*booleans(True), good("numpy str", np.str_("strong"), "strong")),
            "test_flips": booleans(True),
            "precision": choices("float32"),
        },
    ),
    "Problem.of": Target(
        lambda **given: made.train(made.problem(**given)).predict(made.features()),
        candidly.Problem.of,
        {
            "rows": (
                bad("a number", 3),
                bad("a text", "all"),
                bad("numbers", [0, 1, 2]),
                bad("out of range", [[0, 500]]),
                bad("negative", [[-1, 0, 1]]),
                bad("twice", [[0, 0, 1, 2]]),
                bad("floats", [[0.5, 1.5]]),
                bad("none", [[]]),
                bad("two runs for one seed", [range(9), range(9)]),
                bad("an object", Anything()),
                bad("NaN", [[math.nan, 1]]),
                bad("a mask of another length", [np.ones(5, bool)]),
                good("a range", [range(100)], [np.arange(100)]),
            ),
            "seeds": SEED_LISTS,
            "y": (
                bad("a text", "cat"),
                bad("too few", [0, 1]),
                bad("names", ["cat"] * made.ROWS),
                bad("floats", made.truth() + 0.5),
                bad("out of range", made.truth() + 5),
                bad("a matrix", made.matrix()),
                bad("an object", Anything()),
                bad("NaN", np.where(made.truth() == 1, np.nan, made.truth())),
                good("a list", made.truth().tolist(), made.truth()),
            ),
            "classes": (
                bad("a text", "abc"),
                bad("too few", ["a", "b"]),
                bad("twice", ["a", "a", "b"]),
                bad("a number", 3),
                bad("None inside", ["a", "b", None]),
                bad("an object", Anything()),
                good("an array", np.array(["a", "b", "c"]), ["a", "b", "c"]),
            ),
            "standardise": booleans(True),
            "shift": (
                bad("a text", "mean"),
                bad("NaN", [math.nan] * 3),
                bad("infinity", [math.inf] * 3),
                bad("too many", [1.0] * 5),
                bad("an object", Anything()),
                bad("complex", [1j] * 3),
                bad("texts", ["1", "2", "3"]),
                good("a number", 1, [1.0, 1.0, 1.0]),
                good("a tuple", (1.0, 2.0, 3.0), np.array([1.0, 2.0, 3.0])),
            ),
            "scale": (
                bad("a text", "std"),
                bad("NaN", [math.nan] * 3),
                bad("infinity", [math.inf] * 3),
                bad("too many", [1.0] * 5),
                bad("an object", Anything()),
                good("a number", 2, [2.0, 2.0, 2.0]),
            ),
            "weights": (
                bad("a text", "votes"),
                bad("negative", -made.matrix().astype(float)),
                bad("NaN", np.full((made.ROWS, 3), np.nan)),
                bad("another shape", np.ones((made.ROWS, 4))),
                bad("transposed", np.ones((3, made.ROWS))),
                bad("an object", Anything()),
                bad("infinity", np.full((made.ROWS, 3), np.inf)),
                bad("complex", made.matrix() * 1j),
                good("a list", made.matrix().astype(int).tolist(), made.matrix().astype(float)),
            ),
            "groups": (
                bad("a text", "scene"),
                bad("texts", ["a"] * made.ROWS),
                bad("fractions", np.arange(made.ROWS) / 2),
                bad("too few", np.arange(made.ROWS - 1)),
                bad("a matrix", np.zeros((made.ROWS, 2), int)),
                bad("an object", Anything()),
                good("a list", list(range(made.ROWS)), np.arange(made.ROWS)),
                good("int8", np.zeros(made.ROWS, np.int8), np.zeros(made.ROWS, np.int64)),
            ),
            "shards": (
                bad("zero", 0),
                bad("a text", "two"),
                bad("None", None),
                bad("too many", made.ROWS + 1),
                bad("another sum", [made.ROWS, 1]),
                bad("an empty shard", [made.ROWS, 0]),
                bad("a fraction", 1.5),
                bad("an object", Anything()),
                good("sizes", [made.ROWS // 2, made.ROWS - made.ROWS // 2], 2),
            ),
            "dtype": (
                bad("a text", "float32"),
                bad("None", None),
                bad("numpy", np.float32),
                bad("integers", torch.int64),
                bad("booleans", torch.bool),
                bad("complex", torch.complex64),
                bad("a number", 32),
                bad("Python float", float),
            ),
        },
        {"y": ("y", "label"), "classes": ("class",)},
    ),
    "fit": Target(
        _engine_fit,
        candidly.fit,
        {
            "problem": (
                bad("X", made.features()),
                bad("None", None),
                bad("a dict", {"X": 1}),
                bad("a text", "digits"),
                bad("a dataset's name", "lost"),
                bad("an object", Anything()),
            ),
            "method": (
                bad("None", None),
                bad("unknown", "prodn"),
                bad("a class", candidly.Proden),
                bad("an object", Anything()),
                bad("a cleaner", candidly.Conformal()),
                odd("a name", "proden", candidly.Proden()),
            ),
            "cleaner": (
                bad("unknown", "soap"),
                bad("a class", candidly.Conformal),
                bad("an object", Anything()),
                bad("False", False),
                bad("a method", candidly.Proden()),
                odd("a name", "conformal", candidly.Conformal()),
            ),
            "recipe": (
                bad("None", None),
                bad("unknown", "slow"),
                bad("a number", 3),
                bad("a dict", {"epochs": 1}),
                bad("a class", candidly.Recipe),
                bad("a billion epochs", candidly.Recipe(epochs=10**9)),
            ),
            "net": NETS,
            "device": DEVICES,
            "graph": choices("off"),
            "deterministic": booleans(True),
            "checkpoint": tuple(value for value in paths(exists=False) if value.label != "None"),
            "every": integers(3, 1),
            "progress": tuple(value for value in booleans(False) if value.label != "None"),
            "stop": (bad("a boolean", False), bad("a text", "no"), bad("a number", 3), bad("an object", Anything())),
            "held_out": (
                bad("a number", 3),
                bad("a text", "all"),
                bad("out of range", [[500]]),
                bad("negative", [[-1]]),
                bad("floats", [[0.5]]),
                bad("two runs for one", [[1], [2]]),
                bad("an object", Anything()),
                bad("numbers", [1, 2]),
            ),
            "patience": integers(3, 1, none=True),
        },
        {"held_out": ("held_out", "held out", "held-out"), "recipe": ("recipe", "epochs")},
    ),
    "Model.predict": Target(
        lambda **given: made.trained().predict(**given),
        candidly.Model.predict,
        {
            "X": (
                bad("None", None),
                bad("a text", "X"),
                bad("1-D", made.features()[0]),
                bad("another width", made.features()[:, :2]),
                bad("NaN", np.full((made.ROWS, 3), math.nan)),
                bad("infinity", np.full((made.ROWS, 3), math.inf)),
                bad("an object", Anything()),
                bad("complex", made.features() * 1j),
                bad("texts", [["a", "b", "c"]]),
                bad("ragged", [[1.0, 2.0, 3.0], [1.0]]),
                bad("1e300", made.features() * 1e300),
                bad("no rows at all", []),
                good("a list", made.features().tolist(), made.features()),
                good("float32", made.features().astype(np.float32), made.features()),
                good("Fortran order", np.asfortranarray(made.features()), made.features()),
                good(
                    "a tensor that needs gradients", torch.tensor(made.features(), requires_grad=True), made.features()
                ),
            )
        },
    ),
    "Model.to": Target(lambda **given: made.train().to(**given), candidly.Model.to, {"device": DEVICES}),
    "Model.save": Target(
        lambda **given: made.trained().save(**given),
        candidly.Model.save,
        {"folder": paths(False)},
        {"folder": ("folder", "path")},
    ),
    "Model.load": Target(
        lambda **given: candidly.Model.load(**given),
        candidly.Model.load,
        {"folder": paths(True), "net": (), "method": ()},
        {"folder": ("folder", "path", "model.json", "nowhere")},
    ),
    "encode": Target(
        lambda **given: candidly.encode(**({"y": made.names()} | given)),
        candidly.encode,
        {
            "classes": CLASS_LISTS,
            "separator": (
                *_OBJECTS,
                bad("a number", 3),
                bad("empty", ""),
                bad("bytes", b"|"),
                bad("True", True),
                bad("for lists of names", "|"),
            ),
        },
        {"classes": ("class",)},
    ),
    "Candidates": Target(
        lambda **given: candidly.Candidates(**({"matrix": made.matrix(), "classes": made.CLASSES} | given)),
        candidly.Candidates,
        {
            "matrix": (
                bad("None", None),
                bad("a text", "cat"),
                bad("a number", 3),
                bad("1-D", made.matrix()[0]),
                bad("integers", made.matrix() * 1),
                bad("an empty row", np.zeros((2, 3), bool)),
                bad("no rows", np.zeros((0, 3), bool)),
                bad("one class", np.ones((4, 1), bool)),
                bad("3-D", np.ones((2, 2, 3), bool)),
                bad("objects", np.array([[None, True, False]])),
                bad("an object", Anything()),
                bad("masked", np.ma.masked_array(made.matrix(), mask=np.eye(made.ROWS, 3, dtype=bool))),
                good("nested lists", made.matrix().tolist(), made.matrix()),
                good("a tensor", torch.tensor(made.matrix()), made.matrix()),
            ),
            "index": (
                bad("a number", 3),
                bad("a text", "id"),
                bad("too few", ["a"]),
                bad("an object", Anything()),
                good("an array", np.arange(made.ROWS), list(range(made.ROWS))),
            ),
            "classes": (
                bad("a text", "cat"),
                bad("a number", 3),
                bad("too few", ("cat", "dog")),
                bad("twice", ("cat", "cat", "dog")),
                bad("None", None),
                bad("NaN inside", ("cat", "dog", math.nan)),
                bad("an object", Anything()),
                bad("lists inside", (["cat"], ["dog"], ["emu"])),
                good("a list", list(made.CLASSES), made.CLASSES),
                good("an array", np.array(made.CLASSES), made.CLASSES),
            ),
        },
        {"matrix": ("matrix", "candidates", "row", "classes"), "classes": ("class",)},
    ),
    "Candidates.save": Target(
        lambda **given: candidly.encode(made.names()).save(**({"folder": "sets"} | given)),
        candidly.Candidates.save,
        {
            "folder": paths(False),
            "facts": (
                bad("a text", "x"),
                bad("a number", 3),
                bad("not JSON", {"a": Anything()}),
                bad("NaN", {"a": math.nan}),
                bad("a list", [1]),
                bad("sets", {"a": {1, 2}}),
            ),
            "stem": (
                *_OBJECTS,
                bad("a number", 3),
                bad("empty", ""),
                bad("a path", "../sets"),
                bad("None", None),
                bad("a null character", "a\0b"),
            ),
        },
        {"folder": ("folder", "path")},
    ),
    "Candidates.load": Target(
        lambda **given: candidly.Candidates.load(**({"folder": "sets"} | given)),
        candidly.Candidates.load,
        {
            "folder": paths(True),
            "stem": (*_OBJECTS, bad("missing", "other"), bad("a number", 3), bad("empty", ""), bad("None", None)),
        },
        {"folder": ("folder", "path", "nowhere"), "stem": ("stem", "other", "sets")},
    ),
    "from_annotations": Target(
        lambda **given: (
            candidly.from_annotations(
                **({"table": made.votes(), "task": "task", "worker": "worker", "label": "label"} | given)
            ).candidates
        ),
        candidly.from_annotations,
        {
            "task": (
                bad("missing", "tusk"),
                bad("a number", 3),
                bad("a list", ["task"]),
                bad("empty", ""),
                bad("twice", "label"),
            ),
            "worker": (bad("missing", "wrker"), bad("a number", 3), bad("a list", ["worker"])),
            "label": (bad("missing", "lable"), bad("a number", 3), bad("a list", ["label"])),
            "classes": CLASS_LISTS,
            "min_votes": limits(2, 1),
            "min_share": shares(0.25, zero=True, one=True),
            "anonymous": booleans(True),
            "columns": (bad("beside task, worker and label", ["label"]), bad("a number", 3), bad("a text", "label")),
        },
        {
            "classes": ("class",),
            "task": ("task", "tusk", "label"),
            "worker": ("worker", "wrker"),
            "label": ("label", "lable"),
            "columns": ("columns",),
        },
    ),
    "corrupt.uniform": Target(
        lambda **given: corrupt.uniform(**({"y": made.truth(), "num_classes": 3, "q": 0.5, "seed": 0} | given)),
        corrupt.uniform,
        {
            "y": (
                bad("None", None),
                bad("a text", "cat"),
                bad("floats", [0.5, 1.0]),
                bad("names", ["cat", "dog"]),
                bad("out of range", [0, 5]),
                bad("negative", [-1, 0]),
                bad("a matrix", made.matrix()),
                bad("an object", Anything()),
                bad("NaN", [math.nan, 0]),
                bad("a number", 3),
                bad("booleans", [True, False]),
                bad("masked", np.ma.masked_array(made.truth(), mask=made.truth() == 1)),
                good("a list", made.truth().tolist(), made.truth()),
                good("int8", made.truth().astype(np.int8), made.truth()),
            ),
            "num_classes": (*integers(4, 1), bad("a billion", 10**9)),
            "q": shares(0.25, zero=True, one=True),
            "seed": seeds_(3),
        },
        {"y": ("y", "label"), "num_classes": ("num_classes", "label")},
    ),
    "corrupt.hierarchical": Target(
        lambda **given: corrupt.hierarchical(
            **({"y": made.truth(), "superclasses": [0, 0, 1], "q": 0.5, "seed": 0} | given)
        ),
        corrupt.hierarchical,
        {
            "superclasses": (
                bad("None", None),
                bad("a text", "aab"),
                bad("too few", [0]),
                bad("floats", [0.0, 0.0, 1.0]),
                bad("nested", [[0], [0], [1]]),
                bad("an object", Anything()),
                bad("NaN", [0, 0, math.nan]),
                good("names", ["a", "a", "b"], [0, 0, 1]),
            ),
            "q": shares(0.25, zero=True, one=True),
            "seed": seeds_(3),
            "y": (bad("None", None), bad("names", ["cat"])),
        },
        {"superclasses": ("superclasses", "label"), "y": ("y", "label")},
    ),
    "corrupt.uniform_superset": Target(
        lambda **given: corrupt.uniform_superset(**({"y": made.truth(), "num_classes": 3, "seed": 0} | given)),
        corrupt.uniform_superset,
        {
            "num_classes": (bad("1", 1), bad("text", "3"), NONE),
            "seed": (bad("negative", -1), bad("text", "0"), NONE),
            "y": (bad("None", None),),
        },
        {"y": ("y", "label")},
    ),
    "corrupt.label_dependent": Target(
        lambda **given: corrupt.label_dependent(
            **({"y": made.truth(), "num_classes": 3, "seed": 0, "probabilities": (0.5,)} | given)
        ),
        corrupt.label_dependent,
        {
            "probabilities": (
                bad("a number", 0.5),
                bad("None", None),
                bad("texts", ["0.5"]),
                bad("negative", [-0.5]),
                bad("NaN", [math.nan]),
                bad("too many", [0.5] * 5),
                bad("a text", "0.5"),
                bad("an object", Anything()),
                bad("nested", [[0.5]]),
                good("an array", np.array([0.5]), (0.5,)),
            ),
            "num_classes": (bad("text", "3"), NONE),
            "seed": (bad("negative", -1), NONE),
            "y": (bad("None", None),),
        },
        {"y": ("y", "label")},
    ),
    "corrupt.noisy": Target(
        lambda **given: corrupt.noisy(
            **({"y": made.truth(), "num_classes": 3, "q": 0.5, "eta": 0.25, "seed": 0} | given)
        ),
        corrupt.noisy,
        {
            "eta": shares(0.25, zero=True, one=True),
            "q": (bad("text", "0.5"), NONE),
            "num_classes": (bad("text", "3"), NONE),
            "seed": (bad("negative", -1), NONE),
            "y": (bad("None", None),),
        },
        {"y": ("y", "label")},
    ),
    "corrupt.long_tailed": Target(
        lambda **given: corrupt.long_tailed(**({"y": made.truth(), "num_classes": 3, "rho": 0.5, "seed": 0} | given)),
        corrupt.long_tailed,
        {
            "rho": shares(0.25, one=True),
            "num_classes": (bad("1", 1), bad("text", "3"), NONE),
            "seed": (bad("negative", -1), NONE),
            "y": (bad("None", None),),
        },
        {"y": ("y", "label")},
    ),
    "corrupt.instance_dependent_from": Target(
        lambda **given: corrupt.instance_dependent_from(
            **({"p": np.eye(3)[made.truth()], "y": made.truth(), "seed": 0} | given)
        ),
        corrupt.instance_dependent_from,
        {
            "p": (
                bad("None", None),
                bad("a text", "p"),
                bad("1-D", [0.5, 0.5]),
                bad("negative", -np.eye(3)[made.truth()]),
                bad("NaN", np.full((made.ROWS, 3), math.nan)),
                bad("too few rows", np.eye(3)),
                bad("texts", [["a"] * 3] * made.ROWS),
                bad("an object", Anything()),
                bad("complex", np.eye(3)[made.truth()] * 1j),
            ),
            "rate": tuple(value for value in positives(0.5) if value is not NONE),
            "seed": (bad("negative", -1), NONE),
            "y": (bad("None", None),),
        },
        {"y": ("y", "label")},
    ),
    "corrupt.instance_dependent": Target(
        lambda **given: corrupt.instance_dependent(
            **(
                {
                    "X": made.features(),
                    "y": made.truth(),
                    "num_classes": 3,
                    "seed": 0,
                    "recipe": made.recipe(),
                    "device": "cpu",
                }
                | given
            )
        ),
        corrupt.instance_dependent,
        {
            "X": (
                bad("None", None),
                bad("a text", "X"),
                bad("NaN", made.features() * math.nan),
                bad("texts", [["a"]] * made.ROWS),
                bad("too few rows", made.features()[:5]),
            ),
            "num_classes": (bad("text", "3"), NONE),
            "seed": (bad("negative", -1), bad("text", "0"), bad("a fraction", 0.5), NONE),
            "rate": (bad("text", "0.8"), bad("negative", -1), bad("NaN", math.nan)),
            "net": NETS,
            "recipe": (bad("unknown", "slow"), bad("a number", 3), bad("a dict", {"epochs": 1})),
            "device": DEVICES,
            "shift": (bad("text", "mean"), bad("NaN", math.nan)),
            "scale": (bad("text", "std"), bad("NaN", math.nan)),
            "y": (bad("None", None), bad("too few", [0, 1])),
        },
        {"y": ("y", "label")},
    ),
    "data.load": Target(
        lambda **given: data.load(**({"name": "lost", "root": "here"} | given)),
        data.load,
        {
            "name": (
                bad("None", None),
                bad("a number", 3),
                bad("unknown", "losst"),
                bad("an object", Anything()),
                bad("empty", ""),
                bad("missing file", "none.csv"),
                bad("a null character", "a\0b.csv"),
                bad("unknown suffix", Path("a.xlsx")),
            ),
            "root": (
                bad("a number", 3),
                bad("an object", Anything()),
                bad("missing", "nowhere"),
                bad("a null character", "a\0b"),
            ),
            "download": tuple(
                value for value in booleans(False) if value.label not in ("numpy bool", "0 or 1", "None")
            ),
        },
        {"name": ("name", "dataset", "none.csv", "xlsx", "path"), "root": ("root", "nowhere")},
    ),
    "data.read_table": Target(
        _with_files(
            lambda **given: data.read_table(**({"path": "numbers.csv", "candidates": "tags", "label": "truth"} | given))
        ),
        data.read_table,
        {
            "path": paths(True),
            "candidates": texts_("tags"),
            "label": texts_("truth", none=True),
            "groups": texts_("age", none=True),
            "separator": texts_("|"),
            "drop": (
                bad("a text", "age"),
                bad("missing", ["nothing"]),
                bad("a number", 3),
                bad("the candidates", ["tags"]),
                bad("None inside", [None]),
                good("a tuple", ("age",), ["age"]),
            ),
            "classes": CLASS_LISTS,
            "delimiter": (
                bad("two", "::"),
                bad("a number", 3),
                bad("empty", ""),
                bad("a line break", "\n"),
                bad("a quote", '"'),
            ),
        },
        {
            "path": ("path", "nowhere", "source", "suffix", "name must end", "xxxx"),
            "candidates": ("candidates", "column"),
            "label": ("label", "column"),
            "groups": ("groups", "column"),
            "classes": ("class",),
            "drop": ("drop", "nothing", "candidates"),
        },
    ),
    "find_bags": Target(
        lambda **given: candidly.candidates.find_bags(**({"S": made.matrix()} | given)),
        candidly.candidates.find_bags,
        {
            "S": (
                bad("None", None),
                bad("a text", "cat|dog"),
                bad("names", made.names()),
                bad("integers", made.matrix().astype(int)),
                bad("a vector", made.matrix()[0]),
                bad("a tensor", torch.tensor(made.matrix().tolist())),
                bad("an object", Anything()),
                good("Candidates", candidly.candidates.encode(made.names()), made.matrix()),
                good("columns first", np.asfortranarray(made.matrix()), made.matrix()),
            ),
        },
    ),
    "Schema": Target(
        _with_files(
            lambda **given: (
                tables.read_labelled("rows.csv", tables.Schema(**({"candidates": "tags"} | given))).candidates
            )
        ),
        tables.Schema,
        {
            "candidates": texts_("tags", none=True),
            "id": texts_("id", none=True),
            "labels": texts_("truth", none=True),
            "groups": texts_("size", none=True),
            "drop": (bad("a text", "age"), bad("a number", 3), bad("None inside", [None]), bad("missing", ["nothing"])),
            "separator": texts_("|"),
            "delimiter": (
                bad("two", "::"),
                bad("a number", 3),
                bad("empty", ""),
                bad("a line break", "\n"),
                bad("a quote", '"'),
            ),
            "encoders": (
                bad("a text", "photo"),
                bad("a number", 3),
                bad("None inside", [None]),
                bad("names", ["photo"]),
            ),
        },
        {
            "candidates": ("candidates", "column"),
            "id": ("id", "column"),
            "labels": ("labels", "column"),
            "groups": ("groups", "column"),
            "drop": ("drop", "nothing"),
        },
    ),
    "ImageEncoder": Target(
        lambda **given: encoders.ImageEncoder(**({"device": "cpu"} | given)).fit_transform(_PICTURES),
        encoders.ImageEncoder,
        {
            "encoder": choices("efficientnet-lite0"),
            "n_components": (*integers(2, 1, none=True), *HUGE),
            "batch_size": integers(2, 1, none=True),
            "device": DEVICES,
            "broken": choices("error"),
            "verbose": (good("True", True, 0), good("a number", 1, 0)),
        },
    ),
    "TextEncoder": Target(
        lambda **given: encoders.TextEncoder(**({"device": "cpu"} | given)).fit_transform(["a bird", "a tree", "oil"]),
        encoders.TextEncoder,
        {
            "encoder": choices("all-minilm-l6-v2"),
            "n_components": (*integers(2, 1, none=True), *HUGE),
            "batch_size": integers(3, 1, none=True),
            "device": DEVICES,
            "verbose": (good("True", True, 0), good("a number", 1, 0)),
        },
    ),
    "VoteColumns": Target(
        _with_files(
            lambda **given: (
                tables.read_votes(
                    "votes.csv", tables.VoteColumns(**given), "rows.csv", tables.Schema(id="id", drop=("tags", "truth"))
                )[0].candidates
            )
        ),
        tables.VoteColumns,
        {
            "task": texts_("task", none=True),
            "worker": texts_("worker", none=True),
            "label": texts_("label", none=True),
            "annotators": (
                bad("a text", "ann"),
                bad("a number", 3),
                bad("none", []),
                bad("None inside", [None]),
                bad("twice", ["ann", "ann"]),
            ),
            "delimiter": (bad("two", "::"), bad("a number", 3), bad("empty", "")),
        },
        {name: (name, "column") for name in ("task", "worker", "label", "annotators")} | {"delimiter": ("delimiter",)},
    ),
    "tables.read": Target(
        _with_files(lambda **given: tables.read(**({"source": "rows.csv"} | given)).to_pydict()),
        tables.read,
        {
            "source": paths(True),
            "delimiter": (
                bad("two", "::"),
                bad("a number", 3),
                bad("empty", ""),
                bad("a line break", "\n"),
                bad("a quote", '"'),
            ),
            "texts": (bad("a text", "size"), bad("a number", 3), bad("None", None), good("a set", {"size"}, ["size"])),
        },
        {"source": ("source", "path", "nowhere", "name must end", "xxxx", "suffix")},
    ),
    "tables.write": Target(
        lambda **given: tables.write(**({"table": made.arrow(), "target": "new.csv"} | given)),
        tables.write,
        {
            "table": (
                bad("None", None),
                bad("a text", "rows.csv"),
                bad("a number", 3),
                bad("an array", made.features()),
                bad("an object", Anything()),
                bad("a dict", {"a": 1}),
            ),
            "target": (
                *paths(False),
                bad("unknown suffix", "new.xlsx"),
                bad("missing folder", "nowhere/new.csv"),
                bad("no suffix", "new"),
            ),
            "separator": texts_("|"),
        },
        {"target": ("target", "path", "new", "nowhere", "name must end", "xxxx")},
    ),
    "tables.read_labelled": Target(
        _with_files(
            lambda **given: (
                tables.read_labelled(
                    **({"source": "rows.csv", "schema": tables.Schema("tags", "id", "truth")} | given)
                ).candidates
            )
        ),
        tables.read_labelled,
        {
            "source": paths(True),
            "schema": (
                bad("None", None),
                bad("a text", "tags"),
                bad("a dict", {"candidates": "tags"}),
                bad("an object", Anything()),
                bad("no candidates", tables.Schema(id="id")),
            ),
            "classes": CLASS_LISTS,
            "like": LIKE,
            "texts": TEXTS,
        },
        {
            "source": ("source", "path", "nowhere", "name must end", "xxxx"),
            "classes": ("class",),
            "schema": ("schema", "candidates"),
        },
    ),
    "tables.read_votes": Target(
        _with_files(
            lambda **given: (
                tables.read_votes(
                    **(
                        {
                            "votes": "votes.csv",
                            "columns": tables.VoteColumns(),
                            "source": "rows.csv",
                            "schema": tables.Schema(id="id", drop=("tags", "truth")),
                        }
                        | given
                    )
                )[0].candidates
            )
        ),
        tables.read_votes,
        {
            "votes": paths(True),
            "source": paths(True),
            "columns": (
                bad("None", None),
                bad("a text", "label"),
                bad("a dict", {"task": "task"}),
                bad("an object", Anything()),
            ),
            "schema": (bad("None", None), bad("a text", "id"), bad("an object", Anything())),
            "classes": CLASS_LISTS,
            "min_votes": integers(2, 1),
            "min_share": shares(0.25, zero=True, one=True),
            "anonymous": booleans(True),
            "skip_tasks": booleans(True),
            "like": LIKE,
            "texts": TEXTS,
        },
        {
            "source": ("source", "path", "nowhere", "name must end", "xxxx"),
            "votes": ("votes", "path", "nowhere", "name must end", "xxxx"),
            "classes": ("class",),
            "columns": ("columns",),
            "schema": ("schema",),
        },
    ),
    "Features.fit": Target(
        lambda **given: tables.Features.fit(**({"X": made.features()} | given)).transform(made.features()),
        tables.Features.fit,
        {
            "max_categories": integers(20, 1),
            "n_components": integers(20, 1, none=True),
            "rows": (
                bad("a text", "all"),
                bad("out of range", np.array([500])),
                bad("floats", np.array([0.5])),
                bad("none", np.array([], int)),
                bad("negative", np.array([-1])),
                bad("an object", Anything()),
                good("a list", [0, 1, 2, 3], np.array([0, 1, 2, 3])),
            ),
        },
    ),
    "Features.from_json": Target(
        lambda **given: tables.Features.from_json(
            **({"facts": tables.Features.fit(made.features()).to_json()} | given)
        ),
        tables.Features.from_json,
        {
            "facts": (
                bad("None", None),
                bad("a text", "{}"),
                bad("empty", {}),
                bad("a list", []),
                bad("an object", Anything()),
            ),
            "components": (
                bad("a text", "abc"),
                bad("of another width", np.ones((99, 2), np.float32)),
                bad("a vector", np.ones(3, np.float32)),
                bad("an object", Anything()),
            ),
        },
        {
            "facts": ("facts", "features", "Features", "columns"),
            "components": ("components", "features", "Features", "columns"),
        },
    ),
    "Schema.from_json": Target(
        lambda **given: tables.Schema.from_json(**given),
        tables.Schema.from_json,
        {
            "facts": (
                bad("a text", "{}"),
                bad("a list", [1]),
                bad("an object", Anything()),
                bad("unknown key", {"x": 1}),
                bad("wrong type", {"candidates": 3}),
            )
        },
        {"facts": ("facts", "schema", "Schema", "candidates", "columns", "roles")},
    ),
    "Budget.of": Target(
        lambda **given: cleaning.Budget.of(
            torch.log(torch.full((made.ROWS, 3), 1 / 3)), torch.tensor(made.matrix()), **given
        ),
        cleaning.Budget.of,
        {"caution": positives(0.25, zero=True), "alone": shares(0.25, zero=True, one=True)},
    ),
    "find_cleaner": Target(
        cleaning.find_cleaner,
        cleaning.find_cleaner,
        {"cleaner": tuple(v for v in CLEANERS if v.label not in ("an instance", "'none'"))},
    ),
    "find_method": Target(
        candidly.methods.find_method,
        candidly.methods.find_method,
        {"method": tuple(v for v in METHODS if v.label != "an instance")},
    ),
    "Spec": Target(
        lambda **given: bench.Spec(**({"datasets": ("lost",), "methods": ("proden",)} | given)),
        bench.Spec,
        {
            "datasets": (
                bad("None", None),
                bad("a number", 3),
                bad("none", []),
                bad("an empty name", ["lost", ""]),
                bad("numbers", [1, 2]),
                bad("None inside", [None]),
                bad("an object", Anything()),
                bad("a dict", {"lost": 1}),
                good("a list", ["lost"], ("lost",)),
            ),
            "methods": (
                bad("None", None),
                bad("a number", 3),
                bad("none", []),
                bad("unknown", ["prodn"]),
                bad("numbers", [1]),
                bad("an object", Anything()),
                bad("None inside", [None]),
                bad("unknown cleaner", ["soap+proden"]),
                good("a list", ["proden"], ("proden",)),
            ),
            "cleaners": (
                bad("None", None),
                bad("a number", 3),
                bad("none", []),
                bad("unknown", ["soap"]),
                bad("an object", Anything()),
            ),
            "seeds": (
                *(value for value in SEED_LISTS if value.label != "a number"),
                bad("twice", [1, 1]),
                bad("words", "all"),
                bad("backwards", "4-0"),
                bad("a billion", "0-999999999"),
                good("a text", "0-1", [0, 1]),
            ),
            "inits": integers(2, 1),
            "protocol": choices("uai2025"),
            "recipe": (bad("None", None), bad("unknown", "slow"), bad("a number", 3), bad("a dict", {"epochs": 1})),
            "own": (
                bad("None", None),
                bad("a list", []),
                bad("a text", "x"),
                bad("a class", {"mine": candidly.Proden}),
                bad("a number", {"mine": 3}),
                bad("a name in use", {"proden": candidly.Proden()}),
                bad("a plus", {"a+b": candidly.Proden()}),
                bad("a number as name", {3: candidly.Proden()}),
                bad("an empty name", {"": candidly.Proden()}),
            ),
        },
        {
            "recipe": ("recipe",),
            "methods": ("method", "cleaner"),
            "cleaners": ("cleaner",),
            "own": ("own", "a+b", "''", "cannot name"),
        },
    ),
    "Scores": Target(
        lambda **given: bench.render(bench.Scores(**({"cells": {("lost", "cc"): {0: 0.5, 1: 0.75}}} | given))),
        bench.Scores,
        {
            "cells": (
                bad("None", None),
                bad("a number", 3),
                bad("a list", [0.5]),
                bad("NaN", {("lost", "cc"): {0: math.nan}}),
                bad("above 1", {("lost", "cc"): {0: 50.0}}),
                bad("negative", {("lost", "cc"): {0: -0.5}}),
                bad("texts", {("lost", "cc"): {0: "high"}}),
                bad("no seeds", {("lost", "cc"): {}}),
                bad("a list of accuracies", {("lost", "cc"): [0.5]}),
                bad("a text as key", {"lost": {0: 0.5}}),
            ),
            "order": (
                bad("None", None),
                bad("a text", "lost"),
                bad("a number", 3),
                bad("unknown names", (("nothing",), ("cc",))),
                bad("one part", (("lost",),)),
            ),
            "split": texts_("train", empty=True),
        },
        {"cells": ("cells", "accuracy", "accuracies", "scores", "seed", "lost")},
    ),
    "bench.render": Target(
        lambda **given: bench.render(**({"scores": bench.Scores({("lost", "cc"): {0: 0.5, 1: 0.75}})} | given)),
        bench.render,
        {
            "scores": (bad("None", None), bad("a dict", {}), bad("an object", Anything())),
            "names": (
                bad("a text", "cc"),
                bad("a number", 3),
                bad("unknown names", {"nothing": "x"}),
                bad("numbers", {"cc": 3}),
                bad("an object", Anything()),
            ),
            "style": choices("csv"),
            "against": (bad("a text", "published.csv"), bad("a dict", {}), bad("an object", Anything())),
            "title": texts_("Results", none=True, empty=True),
            "without": (bad("a text", "cc"), bad("unknown", ["proden"]), bad("a number", 3), bad("numbers", [3])),
            "beside": (
                bad("a text", "runs"),
                bad("no name", bench.Scores({("lost", "cc"): {0: 0.5}})),
                bad("a number", 3),
                bad("two texts", ("runs", "others")),
                bad("an object", Anything()),
            ),
        },
        {"scores": ("scores", "Scores"), "against": ("against", "Scores")},
    ),
    "bench.read": Target(
        lambda **given: bench.read(**({"folders": made.runs()} | given)).cells,
        bench.read,
        {
            "folders": (
                *paths(True),
                bad("none", []),
                bad("numbers", [3]),
                bad("missing inside", ["nowhere"]),
                good("in a list", ["runs"], "runs"),
            ),
            "split": choices("train"),
        },
        {"folders": ("folders", "folder", "path", "nowhere", "xxxx")},
    ),
    "bench.read_csv": Target(
        lambda **given: bench.read_csv(**given),
        bench.read_csv,
        {"path": paths(True)},
        {"path": ("path", "nowhere", "xxxx")},
    ),
    "bench.read_spec": Target(
        lambda **given: bench.read_spec(
            **({"path": made.put("good.toml", 'datasets = ["lost"]\nmethods = ["cc"]\n')} | given)
        ),
        bench.read_spec,
        {
            "path": paths(True),
            "own": (
                bad("a text", "mine.py:Mine"),
                bad("None", None),
                bad("a list", []),
                bad("a class", {"mine": candidly.Proden}),
                bad("a name in use", {"proden": candidly.Proden()}),
            ),
        },
        {"path": ("path", "nowhere", "xxxx"), "own": ("own", "proden")},
    ),
    "bench.read_own": Target(
        lambda place: bench.read_own(place),
        bench.read_own,
        {
            "place": (
                NONE,
                bad("a number", 3),
                bad("no class", "mine.py"),
                bad("no file", "none.py:Mine"),
                bad("another suffix", "mine.txt:Mine"),
                bad("a path as class", "mine.py:os.system"),
                bad("an object", Anything()),
            )
        },
        {"place": ("own", "mine", "none.py")},
    ),
    "bench.find_executor": Target(
        lambda **given: bench.find_executor(**({"engine": "dask://127.0.0.1:9"} | given)),
        bench.find_executor,
        {
            "engine": (
                bad("None", None),
                bad("a number", 3),
                bad("empty", ""),
                bad("another scheme", "http://127.0.0.1:8786"),
                bad("no port", "dask://127.0.0.1"),
                bad("a port that is a text", "dask://127.0.0.1:port"),
                bad("nobody there", "dask://127.0.0.1:9"),
                bad("an object", Anything()),
            ),
            "device": (bad("None", None), bad("a number", 3), bad("an object", Anything())),
        },
    ),
    "bench.sweep": Target(
        lambda **given: (
            bench.sweep(
                **(
                    {
                        "spec": bench.Spec((made.npz(),), ("proden",), seeds=(0,), recipe=made.recipe()),
                        "out": "runs",
                        "device": "cpu",
                        "progress": False,
                    }
                    | given
                )
            ).failed
        ),
        bench.sweep,
        {
            "spec": (
                bad("None", None),
                bad("a text", "spec.toml"),
                bad("a dict", {"datasets": ["lost"]}),
                bad("an object", Anything()),
            ),
            "out": (
                bad("None", None),
                bad("a number", 3),
                bad("empty", ""),
                bad("a null character", "a\0b"),
                bad("a file", "toy.npz"),
                bad("an object", Anything()),
            ),
            "download": tuple(v for v in booleans(False) if v.label != "None"),
            "device": DEVICES,
            "jobs": integers(1, 1, none=True),
            "retry_failed": tuple(v for v in booleans(False) if v.label != "None"),
            "progress": tuple(v for v in booleans(False) if v.label != "None"),
            "executor": (bad("a text", "dask"), bad("a number", 2), bad("an object", Anything())),
        },
        {"out": ("out", "folder", "path", "toy.npz")},
    ),
    "report.summarise": Target(
        lambda **given: report.summarise(**({"classifier": made.fitted()} | given)).to_json(),
        report.summarise,
        {
            "classifier": (
                bad("None", None),
                bad("not fitted", candidly.PartialLabelClassifier()),
                bad("a model", made.trained),
                bad("an object", Anything()),
                bad("a text", "model"),
            ),
            "title": texts_("Title", empty=True),
            "ids": (
                bad("a number", 3),
                bad("too few", ["a"]),
                bad("a text", "id"),
                bad("an object", Anything()),
                good("an array", np.arange(made.ROWS), list(range(made.ROWS))),
            ),
            "y_true": (
                bad("a number", 3),
                bad("too few", ["cat"]),
                bad("a text", "cat"),
                bad("unknown", ["owl"] * made.ROWS),
                bad("an object", Anything()),
            ),
            "alphas": tuple(value for value in LEVELS if value.label != "none"),
            "verified": CHECKED,
        },
        {
            "classifier": ("classifier", "fitted"),
            "alphas": ("alpha",),
            "y_true": ("y_true", "true label", "labels"),
            "verified": ("verified", "answer"),
        },
    ),
    "report.write": Target(
        lambda **given: report.write(**({"facts": report.summarise(made.fitted()), "path": "page.html"} | given)),
        report.write,
        {
            "facts": (
                bad("None", None),
                bad("a dict", {}),
                bad("a classifier", made.fitted),
                bad("an object", Anything()),
            ),
            "path": (*paths(False), bad("missing folder", "nowhere/page.html")),
        },
        {"path": ("path", "page", "nowhere", "xxxx", "folder")},
    ),
    "review.Log": Target(
        lambda **given: review.Log(**({"path": "log.jsonl", "create": True} | given)).decisions,
        review.Log,
        {"path": (*paths(False), bad("a folder", ".")), "create": booleans(True)},
        {"path": ("path", "xxxx", "folder")},
    ),
    "report.render": Target(
        report.render,
        report.render,
        {"facts": (bad("None", None), bad("a dict", {}), bad("a text", "x"), bad("an object", Anything()))},
    ),
    "ReportFacts.from_json": Target(
        lambda **given: report.ReportFacts.from_json(**given),
        report.ReportFacts.from_json,
        {
            "facts": (
                bad("None", None),
                bad("a text", "{}"),
                bad("empty", {}),
                bad("a list", []),
                bad("an object", Anything()),
            )
        },
        {"facts": ("facts", "report", "title")},
    ),
    "Dataset": Target(
        lambda **given: data.Dataset(
            **(
                {"name": "toy", "X": made.features(), "S": made.matrix(), "y": made.truth(), "classes": made.CLASSES}
                | given
            )
        ),
        data.Dataset,
        {
            "name": texts_("toy"),
            "X": (
                bad("None", None),
                bad("1-D", made.features()[:, 0]),
                bad("too few rows", made.features()[:5]),
                bad("texts", np.array([["a"]] * made.ROWS)),
                bad("an object", Anything()),
                bad("NaN", made.features() * math.nan),
            ),
            "S": (
                bad("None", None),
                bad("integers", made.matrix() * 2),
                bad("an empty row", made.matrix() & False),
                bad("too few rows", made.matrix()[:5]),
            ),
            "y": (
                bad("floats", made.truth() + 0.5),
                bad("out of range", made.truth() + 9),
                bad("too few", made.truth()[:5]),
                bad("names", np.array(["cat"] * made.ROWS)),
            ),
            "classes": (
                bad("too few", ("cat",)),
                bad("a text", "cat"),
                bad("twice", ("cat", "cat", "dog")),
                bad("None", None),
            ),
            "num_train": (bad("negative", -1), bad("too many", 500), bad("text", "5"), bad("a fraction", 0.5)),
            "superclasses": (bad("too few", (0,)), bad("a text", "aab")),
            "groups": (
                bad("a list", [0] * made.ROWS),
                bad("too few", made.truth()[:5]),
                bad("floats", made.truth() + 0.5),
                bad("names", np.array(["a"] * made.ROWS)),
            ),
        },
        {"X": ("X",), "S": ("S", "candidates", "row"), "y": ("y", "label"), "classes": ("class",)},
    ),
    "estimator.draw": Target(
        lambda **given: estimator.draw(
            **(
                {
                    "evaluation": candidly.evaluate(
                        made.fitted(), made.features(), [made.CLASSES[i] for i in made.truth()]
                    ),
                    "path": "plot.svg",
                }
                | given
            )
        ),
        estimator.draw,
        {
            "evaluation": (bad("None", None), bad("a dict", {}), bad("a classifier", made.fitted)),
            "path": (*paths(False), bad("unknown suffix", "plot.xyz"), bad("missing folder", "nowhere/plot.svg")),
        },
        {"path": ("path", "plot", "nowhere", "xxxx", "suffix", "folder")},
    ),
    "candidates.check": Target(
        candidly.candidates.check,
        candidly.candidates.check,
        {
            "matrix": (
                bad("None", None),
                bad("a text", "x"),
                bad("1-D", made.matrix()[0]),
                bad("integers", made.matrix() * 1),
                bad("an empty row", np.zeros((2, 3), bool)),
                bad("an object", Anything()),
            )
        },
        {"matrix": ("matrix", "candidates", "row")},
    ),
    "Protocol.rows": Target(
        lambda **given: data.PROTOCOLS["default"].rows(
            **(
                {"dataset": data.Dataset("toy", made.features(), made.matrix(), made.truth(), made.CLASSES), "seed": 0}
                | given
            )
        ),
        data.Protocol.rows,
        {
            "dataset": (bad("None", None), bad("a text", "lost"), bad("an object", Anything())),
            "seed": (bad("negative", -1), bad("text", "0"), bad("a fraction", 0.5), NONE),
        },
    ),
}

TARGETS: Mapping[str, Target] = _TARGETS


def cases() -> Iterator[Case]:
    """Yield a case for every target, parameter and value."""
    for target_name, target in TARGETS.items():
        for parameter, values in target.values.items():
            for value in values:
                yield Case(
                    FAMILY,
                    f"{target_name}({parameter}={value.label})",
                    _act(target, parameter, value),
                    _expected(target, parameter, value),
                )


def _act(target: Target, parameter: str, value: Value) -> Callable[[], Any]:
    def act() -> Any:
        given = value.value
        if callable(given) and getattr(given, "__module__", "") == made.__name__:
            given = given()
        return target.call(**{parameter: given})

    return act


def _expected(target: Target, parameter: str, value: Value) -> Expected:
    words = target.names.get(parameter, (parameter,))
    if value.like is SAME:
        return error(*words)

    def check(result: Any) -> bool:
        return made.same(result, target.call(**{parameter: value.like}))

    return either(*words, check=check) if value.may_refuse else right(check)


# What the walk over the public API leaves out, with the reason.
NO_PARAMETERS = "made by the library and read by users; its fields are checked where it is made"
ENGINE = "called by the engine, not by users"
LEFT_OUT: dict[str, str] = {
    **dict.fromkeys(("Batch", "BuildNet", "Sweep", "Predict", "Method", "Cleaner", "OneNetwork"), ENGINE),
    **dict.fromkeys(
        ("Model", "Agreement", "Votes", "Evaluation", "SetCurve", "FitRecord", "Cleaned", "Outcome", "Audit", "Budget"),
        NO_PARAMETERS,
    ),
    **dict.fromkeys(("Agreement", "Annotator", "Certificate", "Confusion", "Decision", "Item"), NO_PARAMETERS),
    **dict.fromkeys(("Provenance", "Session", "VerificationPlan"), NO_PARAMETERS),
    **dict.fromkeys(("Features", "Labelled", "ReportFacts", "Problem", "Protocol", "LicenceNotice"), NO_PARAMETERS),
    **dict.fromkeys(("approximated_accuracy", "covering_rate"), "in the families labels and weights"),
    **dict.fromkeys(("Cavl", "Cc", "Proden", "Rc", "Supervised"), "has no parameters"),
}
METHODS_OF_CLASSES = {"PartialLabelClassifier", "Model", "Candidates", "Problem", "Features", "Schema", "ReportFacts"}


def uncovered() -> list[str]:
    """Return the public functions and constructors that no family covers, to keep the tables complete."""
    from benchmarks.robustness.families import tensors

    covered = {target.covers for target in TARGETS.values()} | set(tensors.FUNCTIONS)
    covered |= {getattr(function, "__func__", function) for function in covered}
    rooms = [candidly, *(room for name in candidly.__all__ if inspect.ismodule(room := getattr(candidly, name)))]
    missing = []
    for room in rooms:
        for name in getattr(room, "__all__", ()):
            public = getattr(room, name)
            if not callable(public) or name in LEFT_OUT or public in covered:
                continue
            missing.append(f"{room.__name__}.{name}")
    for target in TARGETS.values():
        known = {
            name
            for name in inspect.signature(target.covers).parameters
            if name not in ("self", "X", "S", "p", "log_p", "table")
        }
        for name in known - set(target.values) - _ELSEWHERE:
            missing.append(f"{target.covers.__qualname__}({name})")
    return sorted(set(missing))


_ELSEWHERE = {
    "y",
    "sample_weight",
    "estimator",
    "root",
    "places",
}  # families labels and weights; estimator is duck-typed
