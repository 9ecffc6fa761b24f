"""Saved models, candidates, checkpoints and reports: missing, damaged, edited and hostile files."""

import hashlib
import json
import os
import pickle
import shutil
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch

import candidly
from benchmarks.robustness import made
from benchmarks.robustness.case import Case, Ended, Expected, either, error, right, run

FAMILY = "saved"
MODEL, TENSORS, PAGE = "model/model.json", "model/model-*.safetensors", "model/model-*.report.json"


def predict() -> Ended:
    """Predict with the model in the current folder."""
    made.put("rows.csv", made.new_rows())
    return run("predict", "model", "rows.csv", "--out", "new.csv")


def good(ended: Ended) -> bool:
    """Check that predictions equal those of the undamaged model."""
    found = Path("new.csv").read_bytes()
    shutil.rmtree("model")
    made.model()
    return (
        run("predict", "model", "rows.csv", "--out", "good.csv").status == 0 and Path("good.csv").read_bytes() == found
    )


def harmless(ended: Ended) -> bool:
    """Check that the facts of the model are those of the undamaged one, as after a change between two blanks."""
    found = json.loads(Path(MODEL).read_text())
    shutil.rmtree("model")
    made.model()
    return found == json.loads(Path(MODEL).read_text())


def edited(*keys: Any, **to: Any) -> Callable[[], Ended]:
    """Return a call of `predict` with a model whose facts were changed."""

    def act() -> Ended:
        made.model()
        made.edit_json(MODEL, *keys, **to)
        return predict()

    return act


def damaged(change: Callable[[], object]) -> Callable[[], Ended]:
    """Return a call of `predict` with a model that was changed."""

    def act() -> Ended:
        made.model()
        change()
        return predict()

    return act


def at(pattern: str) -> str:
    """Return the file that a pattern matches; names of saved files contain a hash."""
    return str(next(Path().glob(pattern)))


def rewrite(path: str, change: Callable[[bytes], bytes]) -> Callable[[], object]:
    """Return a function that changes the content of a file."""
    return lambda: Path(at(path)).write_bytes(change(Path(at(path)).read_bytes()))


def flip(position: float) -> Callable[[bytes], bytes]:
    """Return a function that flips a bit at a relative position."""

    def change(content: bytes) -> bytes:
        at = min(int(position * len(content)), len(content) - 1)
        return content[:at] + bytes([content[at] ^ 1]) + content[at + 1 :]

    return change


def link(path: str, target: str) -> Callable[[], object]:
    """Return a function that replaces a file by a link."""
    return lambda: (name := at(path), os.remove(name), os.symlink(target, name))


# A fact of the model, and its new value: all must be refused, because a checksum or a check covers every fact.
FACTS: dict[str, tuple[tuple[Any, ...], dict[str, Any]]] = {
    "format 0": (("format",), {"to": 0}),
    "format 99": (("format",), {"to": 99}),
    "format as text": (("format",), {"to": "1"}),
    "format None": (("format",), {"to": None}),
    "format NaN": (("format",), {"text": "NaN"}),
    "format of 5,000 digits": (("format",), {"text": "9" * 5000}),
    "another checksum": (("tensors", "sha256"), {"to": "0" * 64}),
    "no checksum": (("tensors", "sha256"), {"to": None}),
    "tensors elsewhere": (("tensors", "name"), {"to": "../other.safetensors"}),
    "tensors at an absolute path": (("tensors", "name"), {"to": "/etc/passwd"}),
    "tensors None": (("tensors",), {"to": None}),
    "a class renamed": (("facts", "classes"), {"to": ["cat", "dog", "owl"]}),
    "classes reordered": (("facts", "classes"), {"to": ["dog", "cat", "emu"]}),
    "a class twice": (("facts", "classes"), {"to": ["cat", "cat", "emu"]}),
    "too few classes": (("facts", "classes"), {"to": ["cat", "dog"]}),
    "classes as text": (("facts", "classes"), {"to": "cat"}),
    "classes NaN": (("facts", "classes"), {"text": "[NaN, 1, 2]"}),
    "nested classes": (("facts", "classes"), {"to": [["cat"], ["dog"], ["emu"]]}),
    "a class of 10 MB": (("facts", "classes"), {"to": ["c" * 10_000_000, "dog", "emu"]}),
    "no seeds": (("facts", "seeds"), {"to": []}),
    "a billion as seeds": (("facts", "seeds"), {"to": 10**9}),
    "another shape": (("facts", "shape"), {"to": [6]}),
    "a huge shape": (("facts", "shape"), {"to": [10**12]}),
    "a negative shape": (("facts", "shape"), {"to": [-5]}),
    "shape as text": (("facts", "shape"), {"to": "5"}),
    "another dtype": (("facts", "dtype"), {"to": "float64"}),
    "an unknown dtype": (("facts", "dtype"), {"to": "float128"}),
    "an unknown network": (("facts", "net"), {"to": "os.system"}),
    "another network": (("facts", "net"), {"to": "linear"}),
    "an own network": (("facts", "own_net"), {"to": True}),
    "an unknown method": (("facts", "method"), {"to": {"name": "evil"}}),
    "another method": (
        ("facts", "method"),
        {"to": {"name": "crosel", "warmup": 1, "confidence": 0.9, "lambda_cr": 2.0}},
    ),
    "method as text": (("facts", "method"), {"to": "proden"}),
    "standardised as text": (("facts", "standardised"), {"to": "no"}),
    "recipe NaN": (("facts", "recipe", "max_lr"), {"text": "NaN"}),
    "recipe as text": (("facts", "recipe"), {"to": "fast"}),
    "no estimator": (("facts", "estimator"), {"to": None}),
    "no parameters": (("facts", "estimator", "parameters"), {"to": {}}),
    "an unknown parameter": (("facts", "estimator", "parameters", "evil"), {"to": 1}),
    "folds 3": (("facts", "estimator", "parameters", "folds"), {"to": 3}),
    "folds -1": (("facts", "estimator", "parameters", "folds"), {"to": -1}),
    "folds a billion": (("facts", "estimator", "parameters", "folds"), {"to": 10**9}),
    "members 2": (("facts", "estimator", "parameters", "members"), {"to": 2}),
    "alpha as text": (("facts", "estimator", "parameters", "alpha"), {"to": "low"}),
    "another alpha": (("facts", "estimator", "parameters", "alpha"), {"to": 0.5}),
    "device mps": (("facts", "estimator", "parameters", "device"), {"to": "mps"}),
    "no features": (("facts", "estimator", "features"), {"to": {}}),
    "features as text": (("facts", "estimator", "features"), {"to": "x"}),
    "a schema of another type": (("facts", "estimator", "schema"), {"to": [1]}),
    "versions as text": (("facts", "estimator", "versions"), {"to": "new"}),
}

# Changes that a checker must notice although the checksum is right. The others give another valid model.
VALID = {
    "another checksum",
    "no checksum",
    "a class renamed",
    "classes reordered",
    "another alpha",
    "alpha as text",
    "folds 3",
    "folds -1",
    "folds a billion",
    "members 2",
    "device mps",
    "no parameters",
    "versions as text",
    "format of 5,000 digits",
    "format NaN",
    "classes NaN",
    "recipe NaN",
    "a class of 10 MB",
}

FILES: dict[str, tuple[Callable[[], Any], Expected]] = {
    "good": (damaged(lambda: None), right(good)),
    "no folder": (lambda: predict(), error("model")),
    "an empty folder": (lambda: (os.mkdir("model"), predict())[1], error("model")),
    "a file instead of a folder": (lambda: (made.put("model", b"x"), predict())[1], error("model")),
    "a link to nowhere": (lambda: (os.symlink("nowhere", "model"), predict())[1], error("model")),
    "a link to a model": (
        lambda: (made.model("other"), os.symlink("other", "model"), predict())[2],
        right(lambda ended: Path("new.csv").exists()),
    ),
    "no model.json": (damaged(lambda: os.remove(MODEL)), error("model.json")),
    "no tensors": (damaged(lambda: os.remove(at(TENSORS))), error("safetensors")),
    "no report": (damaged(lambda: os.remove(at(PAGE))), right(good)),
    "model.json is a folder": (damaged(lambda: (os.remove(MODEL), os.mkdir(MODEL))), error("model.json")),
    "tensors are a folder": (
        damaged(lambda: (name := at(TENSORS), os.remove(name), os.mkdir(name))),
        error("safetensors"),
    ),
    "model.json is a link to itself": (damaged(link(MODEL, "model.json")), error("model.json")),
    "model.json is a device": (damaged(link(MODEL, "/dev/zero")), error("model.json")),
    "model.json is a pipe": (damaged(lambda: (os.remove(MODEL), os.mkfifo(MODEL))), error("model.json")),
    "tensors are a device": (damaged(link(TENSORS, "/dev/zero")), error("safetensors")),
    "tensors are a pipe": (
        damaged(lambda: (name := at(TENSORS), os.remove(name), os.mkfifo(name))),
        error("safetensors"),
    ),
    "tensors are a link elsewhere": (
        damaged(lambda: (name := at(TENSORS), shutil.move(name, "elsewhere"), os.symlink("../elsewhere", name))),
        either("safetensors", check=lambda ended: Path("new.csv").exists()),
    ),
    "another file in the folder": (
        damaged(lambda: made.put("model/notes.txt", b"mine")),
        right(lambda ended: Path("model/notes.txt").exists()),
    ),
    "model.json is empty": (damaged(rewrite(MODEL, lambda c: b"")), error("model.json")),
    "model.json is truncated": (damaged(rewrite(MODEL, lambda c: c[:-20])), error("model.json")),
    "model.json is half": (damaged(rewrite(MODEL, lambda c: c[: len(c) // 2])), error("model.json")),
    "model.json has garbage at the end": (damaged(rewrite(MODEL, lambda c: c + b"garbage")), error("model.json")),
    "model.json is zeros": (damaged(rewrite(MODEL, lambda c: bytes(len(c)))), error("model.json")),
    "model.json is latin-1": (damaged(rewrite(MODEL, lambda c: c.replace(b'"cat"', b'"c\xe9t"'))), error("model.json")),
    "model.json is UTF-16": (damaged(rewrite(MODEL, lambda c: c.decode().encode("utf-16"))), error("model.json")),
    "model.json is a list": (damaged(rewrite(MODEL, lambda c: b"[]")), error("model.json")),
    "model.json is a number": (damaged(rewrite(MODEL, lambda c: b"1")), error("model.json")),
    "model.json is null": (damaged(rewrite(MODEL, lambda c: b"null")), error("model.json")),
    "model.json is nested": (damaged(rewrite(MODEL, lambda c: b"[" * 10**6)), error("model.json")),
    "model.json is 300 MB": (damaged(rewrite(MODEL, lambda c: b" " * (300 << 20) + c)), error("model.json")),
    "model.json has a huge integer": (
        damaged(rewrite(MODEL, lambda c: c.replace(b'"format": 2', b'"format": ' + b"2" * 100_000))),
        error("model.json"),
    ),
    "model.json is a pickle": (damaged(rewrite(MODEL, lambda c: pickle.dumps({"format": 1}))), error("model.json")),
    "tensors are empty": (damaged(rewrite(TENSORS, lambda c: b"")), error("safetensors")),
    "tensors are truncated": (damaged(rewrite(TENSORS, lambda c: c[:-8])), error("safetensors")),
    "tensors are text": (damaged(rewrite(TENSORS, lambda c: b"hello")), error("safetensors")),
    "tensors have garbage at the end": (damaged(rewrite(TENSORS, lambda c: c + b"x")), error("safetensors")),
    "tensors are a pickle": (damaged(rewrite(TENSORS, lambda c: pickle.dumps({}))), error("safetensors")),
    "tensors are those of torch.save": (
        damaged(lambda: torch.save({"a": torch.zeros(3)}, at(TENSORS))),
        error("safetensors"),
    ),
    "tensors of another model": (
        damaged(lambda: (made.train().save("engine"), shutil.copy(at("engine/*.safetensors"), at(TENSORS)))),
        error("safetensors"),
    ),
    "a model of the engine": (lambda: (made.train().save("model"), predict())[1], error("model")),
    "candidates instead of a model": (
        lambda: (candidly.encode(made.names()).save("model"), predict())[1],
        error("model"),
    ),
    "a run folder instead of a model": (lambda: (made.runs("model"), predict())[1], error("model")),
    **{
        f"a flipped bit at {p:g} of model.json": (damaged(rewrite(MODEL, flip(p))), either("model", check=harmless))
        for p in np.linspace(0.01, 0.99, 25).round(2)
    },
    **{
        f"a flipped bit at {p:g} of the tensors": (damaged(rewrite(TENSORS, flip(p))), error("safetensors"))
        for p in (0.0, 0.001, 0.01, 0.3, 0.9999)
    },
}


def checkpoint(change: Callable[[], object]) -> Callable[[], Any]:
    """Return a call of `fit` that continues a changed checkpoint."""

    def act() -> Any:
        made.checkpoint()
        change()
        return resume()

    return act


def resume(**options: Any) -> Any:
    """Continue the checkpoint in the current folder."""
    return made.train(
        **(
            {"method": made.Stopping(), "recipe": made.recipe(epochs=8), "checkpoint": "checkpoint", "every": 1}
            | options
        )
    )


def whole(model: Any) -> bool:
    """Check that a model equals one that was trained without an interruption."""
    return made.same(model, made.train(method=made.Stopping(), recipe=made.recipe(epochs=8)))


STATE = "checkpoint/state.json"


def _state_tensors() -> str:
    return at("checkpoint/*.safetensors")


def _edit_state(key: str, **to: Any) -> Callable[[], object]:
    return lambda: made.edit_json(STATE, "facts", key, **to, honest="text" not in to)


CHECKPOINTS: dict[str, tuple[Callable[[], Any], Expected]] = {
    "good": (checkpoint(lambda: None), right(whole)),
    "done 999": (checkpoint(_edit_state("done", to=999)), error("state.json", "checkpoint")),
    "done -1": (checkpoint(_edit_state("done", to=-1)), error("state.json", "checkpoint")),
    "done 0.5": (checkpoint(_edit_state("done", to=0.5)), error("state.json", "checkpoint")),
    "done as text": (checkpoint(_edit_state("done", to="0")), error("state.json", "checkpoint")),
    "done NaN": (checkpoint(_edit_state("done", text="NaN")), error("state.json", "checkpoint")),
    "done true": (checkpoint(_edit_state("done", to=True)), error("state.json", "checkpoint")),
    "epoch 999": (checkpoint(_edit_state("epoch", to=999)), error("state.json", "checkpoint")),
    "epoch 3": (checkpoint(_edit_state("epoch", to=3)), error("state.json", "checkpoint")),
    "epoch -1": (checkpoint(_edit_state("epoch", to=-1)), error("state.json", "checkpoint")),
    "epoch None": (checkpoint(_edit_state("epoch", to=None)), error("state.json", "checkpoint")),
    "epoch of 5,000 digits": (checkpoint(_edit_state("epoch", text="9" * 5000)), error("state.json", "checkpoint")),
    "begun as text": (checkpoint(_edit_state("begun", to="no")), error("state.json", "checkpoint")),
    "begun true": (checkpoint(_edit_state("begun", to=True)), error("state.json", "checkpoint")),
    "no config": (checkpoint(_edit_state("config", to=None)), error("state.json", "checkpoint")),
    "no facts": (checkpoint(lambda: made.edit_json(STATE, "facts", to=None)), error("state.json", "checkpoint")),
    "another format": (checkpoint(lambda: made.edit_json(STATE, "format", to=99)), error("state.json", "checkpoint")),
    "not JSON": (checkpoint(lambda: Path(STATE).write_text("{")), error("state.json")),
    "empty": (checkpoint(lambda: Path(STATE).write_text("")), error("state.json")),
    "no tensors": (checkpoint(lambda: os.remove(_state_tensors())), error("safetensors", "checkpoint")),
    "truncated tensors": (
        checkpoint(lambda: rewrite(_state_tensors(), lambda c: c[:-9])()),
        error("safetensors", "checkpoint"),
    ),
    "a flipped bit in the tensors": (
        checkpoint(lambda: rewrite(_state_tensors(), flip(0.5))()),
        error("safetensors", "checkpoint"),
    ),
    "tensors at another place": (
        checkpoint(lambda: made.edit_json(STATE, "tensors", "name", to="../x.safetensors", honest=True)),
        error("state.json", "checkpoint", "safetensors"),
    ),
    "another recipe": (lambda: (made.checkpoint(), resume(recipe=made.recipe(epochs=9)))[1], error("checkpoint")),
    "another method": (lambda: (made.checkpoint(), resume(method=candidly.Cc()))[1], error("checkpoint")),
    "another cleaner": (lambda: (made.checkpoint(), resume(cleaner=candidly.Conformal()))[1], error("checkpoint")),
    "another problem": (lambda: (made.checkpoint(), resume(problem_=made.problem(seeds=[1])))[1], error("checkpoint")),
    "another network": (lambda: (made.checkpoint(), resume(net="linear"))[1], error("checkpoint")),
    "the checkpoint is a file": (lambda: (made.put("checkpoint", b"x"), resume())[1], error("checkpoint")),
    "the checkpoint holds other files": (
        lambda: (made.put("checkpoint/mine.txt", b"x"), resume(), Path("checkpoint/mine.txt").exists())[2],
        right(lambda kept: kept),
    ),
    "the checkpoint is a model": (
        lambda: (made.trained().save("checkpoint"), resume())[1],
        either("checkpoint", check=whole),
    ),
}


def _bits() -> str:
    return at("sets/*.safetensors")


CANDIDATES: dict[str, tuple[Callable[[], object], Expected]] = {
    "good": (lambda: None, right(lambda sets: made.same(sets, candidly.encode(made.names())))),
    "rows 119": (lambda: made.edit_json("sets/candidates.json", "facts", "rows", to=119), error("sets")),
    "rows 10**12": (lambda: made.edit_json("sets/candidates.json", "facts", "rows", to=10**12), error("sets")),
    "rows true": (lambda: made.edit_json("sets/candidates.json", "facts", "rows", to=True), error("sets")),
    "a class renamed": (
        lambda: made.edit_json("sets/candidates.json", "facts", "classes", to=["cat", "dog", "owl"]),
        error("sets"),
    ),
    "classes None": (lambda: made.edit_json("sets/candidates.json", "facts", "classes", to=None), error("sets")),
    "another digest": (lambda: made.edit_json("sets/candidates.json", "facts", "digest", to="0" * 16), error("sets")),
    "a flipped bit": (lambda: rewrite(_bits(), flip(0.9))(), error("sets")),
    "truncated": (lambda: rewrite(_bits(), lambda c: c[:-4])(), error("sets")),
    "no JSON": (lambda: os.remove("sets/candidates.json"), error("sets", "candidates.json")),
    "no tensors": (lambda: os.remove(_bits()), error("sets", "safetensors")),
    "nested JSON": (lambda: Path("sets/candidates.json").write_text("[" * 10**6), error("candidates.json")),
}


def _candidates(change: Callable[[], object]) -> Callable[[], Any]:
    def act() -> Any:
        candidly.encode(made.names()).save("sets")
        change()
        return candidly.Candidates.load("sets")

    return act


def _report(change: Callable[[], object]) -> Callable[[], Ended]:
    def act() -> Ended:
        made.model()
        change()
        return run("report", "model", "--out", "page.html")

    return act


def _edit_report(key: str, value: Any) -> None:
    """Change a fact of the report, and correct the name and the checksums of its file."""
    facts = json.loads(Path(at(PAGE)).read_text())
    assert key in facts
    content = json.dumps(facts | {key: value}).encode()
    digest = hashlib.sha256(content).hexdigest()
    name = f"model-{digest[:16]}.report.json"
    os.remove(at(PAGE))
    made.put(f"model/{name}", content)
    made.edit_json(MODEL, "more", "report.json", to={"name": name, "sha256": digest}, honest=True)


REPORTS: dict[str, tuple[Callable[[], object], Expected]] = {
    "good": (lambda: None, right(lambda ended: Path("page.html").stat().st_size > 1000)),
    "missing": (lambda: os.remove(at(PAGE)), error("report.json")),
    "empty": (lambda: Path(at(PAGE)).write_text(""), error("report.json")),
    "no JSON": (lambda: Path(at(PAGE)).write_text("{"), error("report.json")),
    "a list": (lambda: Path(at(PAGE)).write_text("[]"), error("report.json")),
    "nested": (lambda: Path(at(PAGE)).write_text("[" * 10**6), error("report.json")),
    "latin-1": (lambda: rewrite(PAGE, lambda c: c.replace(b'"cat"', b'"c\xe9t"'))(), error("report.json")),
    "300 MB": (lambda: rewrite(PAGE, lambda c: b" " * (300 << 20) + c)(), error("report.json")),
    "zeros": (lambda: rewrite(PAGE, lambda c: bytes(len(c)))(), error("report.json")),
    "truncated": (lambda: rewrite(PAGE, lambda c: c[:-30])(), error("report.json")),
}


def cases() -> Iterator[Case]:
    """Yield the cases."""
    for name, (act, expected) in FILES.items():
        yield Case(FAMILY, f"model: {name}", act, expected, gib=2)
    for name, (keys, to) in FACTS.items():
        yield Case(FAMILY, f"model with {name}", edited(*keys, **to), error("model"), gib=2)
        if name not in VALID:
            yield Case(
                FAMILY,
                f"model with {name} and the right checksum",
                edited(*keys, **to, honest=True),
                error("model"),
                gib=2,
            )
    for name, (act, expected) in CHECKPOINTS.items():
        yield Case(FAMILY, f"checkpoint: {name}", act, expected)
    for name, (change, expected) in CANDIDATES.items():
        yield Case(FAMILY, f"candidates: {name}", _candidates(change), expected)
    for name, (change, expected) in REPORTS.items():
        yield Case(FAMILY, f"report: {name}", _report(change), expected, gib=2)
    for name, value in {"a text": "x", "a number": 3, "NaN": float("nan"), "None": None, "a list": [1]}.items():
        for key in ("title", "rows", "classes", "before", "history", "doubtful", "audit", "seconds"):
            if (key, name) not in {
                ("audit", "None"),
                ("title", "a text"),
                ("rows", "a number"),
                ("seconds", "a number"),
            }:
                yield Case(
                    FAMILY,
                    f"report with {key} of {name}",
                    _report(lambda key=key, value=value: _edit_report(key, value)),
                    error("report.json"),
                )
    yield from _saving()


def _saving() -> Iterator[Case]:
    def beside(save: Callable[[str], object]) -> Callable[[], Any]:
        def act() -> Any:
            made.put("here/mine.txt", b"mine")
            made.put("here/sub/more.txt", b"more")
            save("here")
            return Path("here/mine.txt").exists() and Path("here/sub/more.txt").exists()

        return act

    kept = either("here", "mine.txt", check=lambda kept: kept)
    saves: dict[str, Callable[[str], object]] = {
        "a classifier": lambda folder: made.fitted().save(folder),
        "a model": lambda folder: made.trained().save(folder),
        "candidates": lambda folder: candidly.encode(made.names()).save(folder),
    }
    for name, save in saves.items():
        yield Case(FAMILY, f"save {name} beside other files", beside(save), kept)
        yield Case(
            FAMILY,
            f"save {name} where a file is",
            lambda save=save: (made.put("here", b"x"), save("here"))[1],
            error("here"),
        )
        yield Case(
            FAMILY,
            f"save {name} below a file",
            lambda save=save: (made.put("here", b"x"), save("here/model"))[1],
            error("here"),
        )
        yield Case(FAMILY, f"save {name} in /proc", lambda save=save: save("/proc/here"), error("/proc"))
        yield Case(
            FAMILY,
            f"save {name} through a link",
            lambda save=save: (
                os.mkdir("real"),
                os.symlink("real", "here"),
                save("here"),
                os.path.islink("here") and os.listdir("real") != [],
            )[3],
            either("here", check=lambda kept: kept),
        )
        yield Case(
            FAMILY,
            f"save {name} through a dangling link",
            lambda save=save: (os.symlink("nowhere", "here"), save("here"))[1],
            either("here", check=lambda _: True),
        )
    yield Case(FAMILY, "save an own network and load it without", lambda: _own_network(), error("net"))
    yield Case(FAMILY, "load an own network with another one", lambda: _other_network(), error("net"))
    yield Case(
        FAMILY, "save class names that are floats", lambda: _trip([0.5, 1.5]), either("class", check=lambda same: same)
    )
    yield Case(
        FAMILY,
        "save class names that are booleans",
        lambda: _trip([True, False]),
        either("class", check=lambda same: same),
    )
    yield Case(
        FAMILY,
        "save class names with surrogates",
        lambda: _trip(["a\ud800", "b"]),
        either("class", "a\\ud800", check=lambda same: same),
    )
    yield Case(
        FAMILY,
        "save class names with control characters",
        lambda: _trip(["a\x1b", "b"]),
        either("class", check=lambda same: same),
    )
    yield Case(
        FAMILY, "save class names 2**63 and -1", lambda: _trip([2**63, -1]), either("class", check=lambda same: same)
    )
    yield Case(
        FAMILY,
        "save class names of 100,000 characters",
        lambda: _trip(["a" * 100_000, "b"]),
        either("class", check=lambda same: same),
    )
    yield Case(
        FAMILY,
        "save long column names",
        lambda: _columns(["x" * 100_000, "b", "c"]),
        either("column", "name", check=lambda same: same),
    )
    yield Case(
        FAMILY,
        "save column names with control characters",
        lambda: _columns(["a\x1b[31m", "b\n", "c\0"]),
        either("column", "name", check=lambda same: same),
    )
    yield Case(
        FAMILY, "save random_state=RandomState", lambda: _state(), either("random_state", check=lambda same: same)
    )
    yield Case(FAMILY, "two threads save the same folder", lambda: _two_threads(), right(lambda same: same))


def _net() -> Any:
    return torch.nn.Sequential(torch.nn.Linear(3, 8), torch.nn.ReLU(), torch.nn.Linear(8, 3))


def _own_network() -> Any:
    made.fit(net=_net).save("model")
    return candidly.PartialLabelClassifier.load("model")


def _other_network() -> Any:
    made.fit(net=_net).save("model")
    return candidly.PartialLabelClassifier.load("model", net=lambda: torch.nn.Linear(3, 3))


def _trip(classes: list[Any]) -> bool:
    y = [[classes[i % len(classes)]] for i in range(made.ROWS)]
    classifier = made.fit(y=y)
    classifier.save("model")
    loaded = candidly.PartialLabelClassifier.load("model")
    return loaded.predict(made.features()).tolist() == classifier.predict(made.features()).tolist() and set(
        loaded.predict(made.features()).tolist()
    ) <= set(classes)


def _columns(names: list[str]) -> bool:
    import pandas as pd

    X = pd.DataFrame(made.features(), columns=names)
    classifier = made.fit(X)
    classifier.save("model")
    return made.same(candidly.PartialLabelClassifier.load("model").predict_proba(X), classifier.predict_proba(X))


def _state() -> bool:
    classifier = made.fit(random_state=np.random.RandomState(0))
    classifier.save("model")
    return made.same(
        candidly.PartialLabelClassifier.load("model").predict_proba(made.features()),
        classifier.predict_proba(made.features()),
    )


def _two_threads() -> bool:
    made.fitted().save("model")
    failures: list[BaseException] = []

    def work() -> None:
        try:
            for _ in range(10):
                made.fitted().save("model")
                candidly.PartialLabelClassifier.load("model")
        except BaseException as wrong:
            failures.append(wrong)

    threads = [threading.Thread(target=work) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return not failures
