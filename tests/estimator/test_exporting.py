"""Exported programs against `predict_proba`."""

import json

import numpy as np
import pandas as pd
import pytest
import torch

from candidly import PartialLabelClassifier, Proden

LETTERS = np.array(["ant", "bee", "cat"])


def table(n=1000):
    """Rows with numbers, texts, categories and missing values."""
    random = np.random.default_rng(0)
    y = random.integers(3, size=n)
    number = random.normal(y, 0.5)
    number[random.random(n) < 0.1] = np.nan
    place = np.array(["north", "south", None], dtype=object)[random.integers(3, size=n)]
    words = [f"{LETTERS[k]} number {random.integers(50)} in the garden" for k in y]
    X = pd.DataFrame({"number": number, "place": place, "words": words})
    S = random.random((n, 3)) < 0.3
    S[np.arange(n), y] = True
    return X, S


def run(path, rows):
    """Return what an exported program returns for encoded rows."""
    x = rows if rows.dtype == np.uint8 else np.asarray(rows, dtype=np.float32)
    if path.suffix == ".pt2":
        return torch.export.load(path).module()(torch.from_numpy(x)).detach().numpy()
    runtime = pytest.importorskip("onnxruntime")
    session = runtime.InferenceSession(path, providers=["CPUExecutionProvider"])
    return session.run(["probabilities"], {"x": x})[0]


def classes_of(path):
    """Return the class names that an exported file holds."""
    if path.suffix == ".pt2":
        found = {"classes": ""}
        torch.export.load(path, extra_files=found)
        return json.loads(found["classes"])
    onnx = pytest.importorskip("onnx")
    about = {entry.key: entry.value for entry in onnx.load(path).metadata_props}
    return json.loads(about["classes"])


@pytest.fixture(scope="module", params=["balanced", "crosel"])
def fitted(request):
    X, S = table()
    settings = {"folds": 2, "max_epochs": 3, "random_state": 0, "device": "cpu", "verbose": 0}
    return PartialLabelClassifier(method=request.param, **settings).fit(X, S), X


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")
@pytest.mark.parametrize("suffix", [".pt2", ".onnx"])
def test_an_exported_program_names_the_classes_and_equals_predict_proba(fitted, suffix, tmp_path):
    classifier, X = fitted
    path = tmp_path / f"model{suffix}"
    classifier.export(str(path))
    assert classes_of(path) == [str(name) for name in classifier.classes_]
    rows = classifier.features_.transform(X)
    expected = classifier.predict_proba(X)
    assert np.abs(run(path, rows) - expected).max() < 1e-5
    assert np.abs(run(path, rows[:1]) - expected[:1]).max() < 1e-5
    assert expected.std(0).min() > 0.05  # they differ from row to row


def test_other_names_and_other_learners_are_refused(fitted, tmp_path):
    classifier, _ = fitted
    with pytest.raises(ValueError, match=r"cannot be exported to 'model.pkl'; use a name that ends in .onnx or .pt2"):
        classifier.export(tmp_path / "model.pkl")
    X, S = np.arange(40.0)[:, None] % 7, np.eye(2, dtype=bool)[np.arange(40) % 2]
    trees = PartialLabelClassifier(base="logistic-regression", folds=2, verbose=0).fit(X, S)
    with pytest.raises(ValueError, match="only networks can be exported"):
        trees.export(tmp_path / "model.onnx")
    assert not list(tmp_path.iterdir())


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")
def test_custom_networks_and_images(tmp_path):
    random = np.random.default_rng(0)
    X, S = random.integers(256, size=(40, 1, 6, 6), dtype=np.uint8), np.eye(2, dtype=bool)[np.arange(40) % 2]

    def small():
        body = torch.nn.Conv2d(1, 4, 3), torch.nn.BatchNorm2d(4), torch.nn.ReLU(), torch.nn.Flatten()
        return torch.nn.Sequential(*body, torch.nn.Linear(64, 2))

    classifier = PartialLabelClassifier(
        method=Proden(), net=small, folds=2, max_epochs=2, device="cpu", verbose=0, random_state=0
    ).fit(X, S)
    classifier.export(tmp_path / "model.pt2")
    rows = classifier.features_.transform(X)
    assert np.abs(run(tmp_path / "model.pt2", rows) - classifier.predict_proba(X)).max() < 1e-5
