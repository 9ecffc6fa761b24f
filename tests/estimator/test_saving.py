"""Folders of classifiers: what they hold, and those that version 0.1 wrote."""

import json
import platform
import shutil
from pathlib import Path

import numpy as np
import pytest

from candidly import PartialLabelClassifier
from candidly.cli import main
from candidly.tables import files
from candidly.tables.schema import Schema

# Made by version 0.1 with net="linear" and lr=1.0: `candidly fit rows.csv --candidates tags --id key --labels truth
# --drop '"note, long"' --folds 2 --epochs 12 --device cpu`, and what it then predicted, floats as float.hex.
OLD = Path(__file__).parent / "saved_0_1"
SCHEMA = Schema("tags", id="key", labels="truth", drop=["note, long"])
SAME_MACHINE = platform.system() == "Linux" and platform.machine() == "x86_64"  # where the model was made


def features():
    return files.read(OLD / "rows.csv").select(["size", "colour"])


def check_equal(found, expected):
    """Compare to the bit, or closely where another processor may round differently."""
    wanted = np.array([[float.fromhex(text) for text in row] for row in expected])
    if SAME_MACHINE:
        np.testing.assert_array_equal(found, wanted)
    np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-7)


def test_models_of_version_0_1_predict_to_the_bit():
    classifier = PartialLabelClassifier.load(OLD / "model")
    expected = json.loads((OLD / "predictions.json").read_text())
    check_equal(classifier.predict_proba(features()), expected["predict_proba"])
    for one in expected["predict_p"]:
        check_equal(classifier.predict_p(features(), **one["rule"]), one["p"])
    np.testing.assert_array_equal(classifier.predict_set(features(), 0.3), np.array(expected["predict_set"], bool))
    assert classifier.schema_ == SCHEMA


def test_commands_use_models_of_version_0_1(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    model = str(OLD / "model")
    main(["predict", model, str(OLD / "rows.csv"), "--out", "new.csv", "--alpha", "0.3", "--max-risk", "0.4"])
    if SAME_MACHINE:
        assert Path("new.csv").read_bytes() == (OLD / "predicted.csv").read_bytes()
    old, new = files.read(OLD / "predicted.csv"), files.read("new.csv")
    assert new.drop_columns("confidence").equals(old.drop_columns("confidence"))
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
    index = json.loads(path.read_text())
    index["facts"]["estimator"]["schema"] = schema
    path.write_text(json.dumps(index))
    with pytest.raises(ValueError, match="the schema"):
        PartialLabelClassifier.load(tmp_path / "model")


def test_fitting_again_forgets_the_schema():
    classifier = PartialLabelClassifier.load(OLD / "model").set_params(max_epochs=1)
    assert classifier.fit_record_ is None
    classifier.fit(features(), ["cat", "dog", "emu"] * 8)
    assert classifier.schema_ is None
    assert len(classifier.fit_record_.candidates) == 24
