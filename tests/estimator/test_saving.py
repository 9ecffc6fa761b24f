"""Folders of classifiers: what they hold, and those that version 0.1 wrote."""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from scipy import sparse

from candidly import PartialLabelClassifier
from candidly.cli import main
from candidly.engine.nets import mlp
from candidly.store import states
from candidly.tables import Features, files
from candidly.tables.schema import Schema
from tests.store.cases import forge_index

# Made by version 0.1 with net="linear" and lr=1.0: `candidly fit rows.csv --candidates tags --id key --labels truth
# --drop '"note, long"' --folds 2 --epochs 12 --device cpu`, and what it then predicted, floats as float.hex.
OLD = Path(__file__).parent / "saved_0_1"
SCHEMA = Schema("tags", id="key", labels="truth", drop=["note, long"])
BLOCK = 64  # rows that are predicted together


def features():
    return files.read(OLD / "rows.csv").select(["size", "colour"])


def expected():
    return json.loads((OLD / "predictions.json").read_text())


def numbers(texts):
    return np.array([[float.fromhex(text) for text in row] for row in texts])


def plain_probabilities():
    """The old model's probabilities, computed from the tensors in its file."""
    tensors, facts = states.read(OLD / "model", stem="model")
    encoded = Features.from_json(facts["estimator"]["features"]).transform(features())
    x = torch.from_numpy(encoded[np.arange(BLOCK).clip(max=len(encoded) - 1)])
    z = torch.baddbmm(
        tensors["net.net.head.bias"],
        (x.expand(len(tensors["shift"]), -1, -1) - tensors["shift"]) * tensors["scale"],
        tensors["net.net.head.weight"],
    )
    p = z.softmax(-1)[:, : len(encoded)].double().mean(0).numpy()
    return p / p.sum(1, keepdims=True)


@pytest.fixture
def unpadded(monkeypatch):
    """Compute as version 0.1 did, which did not pad narrow layers."""
    monkeypatch.setattr(mlp, "_NARROW", 0)


def rounds_as_recorded():
    """Whether this processor rounds as the one on which version 0.1 made the predictions."""
    return np.array_equal(plain_probabilities(), numbers(expected()["predict_proba"]))


def test_models_of_version_0_1_predict_to_the_bit(unpadded):
    classifier = PartialLabelClassifier.load(OLD / "model")
    found = classifier.predict_proba(features())
    np.testing.assert_array_equal(found, plain_probabilities())
    np.testing.assert_allclose(found, numbers(expected()["predict_proba"]), rtol=1e-5)
    assert classifier.schema_ == SCHEMA


def test_p_values_and_sets_of_models_of_version_0_1_are_the_same_to_the_bit(unpadded):
    """These rows tie with held-out rows whose scores are in the file, so that rounding matters."""
    if not rounds_as_recorded():
        pytest.skip("this processor rounds differently from the one on which the predictions were made")
    classifier = PartialLabelClassifier.load(OLD / "model")
    for one in expected()["predict_p"]:
        np.testing.assert_array_equal(classifier.predict_p(features(), **one["rule"]), numbers(one["p"]))
    np.testing.assert_array_equal(classifier.predict_set(features(), 0.3), np.array(expected()["predict_set"], bool))


def test_padded_layers_change_old_models_in_the_last_bits_only():
    classifier = PartialLabelClassifier.load(OLD / "model")
    np.testing.assert_allclose(classifier.predict_proba(features()), plain_probabilities(), rtol=1e-6)


def test_commands_use_models_of_version_0_1(tmp_path, monkeypatch, capsys, unpadded):
    monkeypatch.chdir(tmp_path)
    model = str(OLD / "model")
    main(["predict", model, str(OLD / "rows.csv"), "--out", "new.csv", "--alpha", "0.3", "--max-risk", "0.4"])
    if rounds_as_recorded():
        old = (OLD / "predicted.csv").read_bytes()
        assert Path("new.csv").read_bytes() == old.replace(b"confidence", b"probability", 1)
    assert files.read("new.csv").column_names == ["key", "predicted", "probability", "set"]
    main(["evaluate", model, str(OLD / "rows.csv"), "--labels", "truth"])
    main(["report", model, "--out", "page.html"])
    assert "24 rows, 3 classes" in capsys.readouterr().out
    assert "dropped columns" in Path("page.html").read_text()


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ([], "settings is "),
        ({"id column": 7}, r"\['id'\] is 7"),
        ({"dropped columns": ["a"]}, "dropped columns is "),
    ],
)
def test_damaged_files_of_version_0_1_are_refused(settings, message, tmp_path):
    shutil.copytree(OLD / "model", tmp_path / "model")
    (tmp_path / "model" / "findings.json").write_text(json.dumps({"settings": settings}))
    with pytest.raises(ValueError, match=rf"findings.json cannot be read: .*{message}"):
        PartialLabelClassifier.load(tmp_path / "model")


def test_a_folder_of_version_0_1_without_a_report_has_no_schema(tmp_path):
    shutil.copytree(OLD / "model", tmp_path / "model", ignore=shutil.ignore_patterns("findings.json"))
    assert PartialLabelClassifier.load(tmp_path / "model").schema_ is None


@pytest.mark.parametrize("schema", [None, Schema("a", drop=["b", "c"], separator=";", delimiter="\t")])
def test_the_schema_is_saved_as_data(schema, tmp_path):
    classifier = PartialLabelClassifier.load(OLD / "model")
    classifier.schema_ = schema
    classifier.save(tmp_path / "model")
    facts = json.loads((tmp_path / "model" / "model.json").read_text())["facts"]["estimator"]
    assert facts["schema"] == (None if schema is None else schema.to_json())
    again = PartialLabelClassifier.load(tmp_path / "model")
    assert again.schema_ == schema
    np.testing.assert_array_equal(again.predict_proba(features()), classifier.predict_proba(features()))


@pytest.mark.parametrize("schema", [{}, [], {**SCHEMA.to_json(), "drop": "a"}, {**SCHEMA.to_json(), "more": 1}])
def test_a_damaged_schema_is_refused(schema, tmp_path):
    PartialLabelClassifier.load(OLD / "model").save(tmp_path / "model")
    path = tmp_path / "model" / "model.json"
    forge_index(path, lambda index: index["facts"]["estimator"].update(schema=schema))
    with pytest.raises(ValueError, match="the schema"):
        PartialLabelClassifier.load(tmp_path / "model")


def test_fitting_again_forgets_the_schema():
    classifier = PartialLabelClassifier.load(OLD / "model").set_params(max_epochs=1)
    assert classifier.fit_record_ is None
    classifier.fit(features(), ["cat", "dog", "emu"] * 8)
    assert classifier.schema_ is None
    assert len(classifier.fit_record_.candidates) == 24


def test_components_of_sparse_rows_are_saved(tmp_path):
    rng = np.random.default_rng(0)
    X = sparse.random(40, 200, density=0.1, random_state=0, format="csr")
    classifier = PartialLabelClassifier(n_components=8, folds=2, max_epochs=1, random_state=0)
    classifier.fit(X, rng.choice(["cat", "dog"], 40))
    assert classifier.model_.shape == (8,)
    assert classifier.n_features_in_ == 200
    classifier.save(tmp_path / "model")
    again = PartialLabelClassifier.load(tmp_path / "model")
    assert again.features_ == classifier.features_
    assert again.get_params()["n_components"] == 8
    np.testing.assert_array_equal(again.predict_proba(X), classifier.predict_proba(X))
    assert again.is_trained_on(X, classifier.fit_record_.candidates)


def test_loading_does_not_import_the_compiler_of_torch(tmp_path):
    """It takes seconds; any arithmetic on the meta device does it."""
    X, y = np.arange(40.0)[:, None] % 7, np.eye(2, dtype=bool)[np.arange(40) % 2]
    PartialLabelClassifier(folds=2, max_epochs=1, device="cpu").fit(X, y).save(tmp_path / "model")
    code = f"import sys, candidly; candidly.PartialLabelClassifier.load({str(tmp_path / 'model')!r})"
    checked = f"{code}; sys.exit('torch._dynamo' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", checked], timeout=120).returncode == 0
