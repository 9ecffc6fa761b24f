"""The encoder of features: in the metadata of tables, in the schema, and compared with that of new rows."""

import json
import warnings
from dataclasses import replace

import pyarrow as pa
import pytest

from candidly.tables import Provenance, Schema, files, read_labelled
from candidly.tables.provenance import KEY, attach, check_encoders, of_table
from candidly.tables.schema import choose_features

MADE = Provenance("photo", "efficientnet-lite0", "1.0", "ab12", "224x224", "cd34")


def table(**more):
    columns = {"photo": ["a.png", "b.png"], "tags": ["cat|dog", "dog"], "photo_0": [0.1, 0.2], "photo_1": [1.0, 2.0]}
    return pa.table(columns | more)


@pytest.mark.parametrize("suffix", [".parquet", ".arrow"])
def test_files_keep_the_encoder(suffix, tmp_path):
    other = replace(MADE, column="caption")
    files.write(attach(attach(table(), MADE), other), tmp_path / f"features{suffix}")
    assert of_table(files.read(tmp_path / f"features{suffix}"), "features") == (MADE, other)


def test_a_column_has_one_encoder():
    newer = replace(MADE, weights="ef56")
    assert of_table(attach(attach(table(), MADE), newer), "t") == (newer,)
    assert of_table(table(), "t") == ()


@pytest.mark.parametrize("noted", [b"", b"{}", b"[1]", b"[[", b'[{"column": "a"}]', b"[" * 100_000, b"\xff"])
def test_damaged_metadata_is_refused(noted):
    damaged = table().replace_schema_metadata({KEY: noted})
    with pytest.raises(ValueError, match=r"t\.parquet has damaged metadata of encoders .*; run `candidly embed` again"):
        of_table(damaged, "t.parquet")


def test_two_encoders_of_one_column_are_damage():
    noted = json.dumps(Provenance.list_to_json([MADE, MADE])).encode()
    with pytest.raises(ValueError, match="damaged metadata"):
        of_table(table().replace_schema_metadata({KEY: noted}), "t.parquet")


def test_the_encoded_column_is_not_a_feature(tmp_path):
    features, schema = choose_features(attach(table(), MADE), "t", Schema("tags"))
    assert features == ["photo_0", "photo_1"]
    assert (schema.drop, schema.encoders) == (("photo",), (MADE,))
    features, schema = choose_features(attach(table(), MADE), "t", Schema("tags", id="photo"))
    assert (features, schema.drop) == (["photo_0", "photo_1"], ())


def test_the_schema_of_a_model_keeps_the_encoder():
    schema = Schema("tags", encoders=[MADE])
    assert Schema.from_json(json.loads(json.dumps(schema.to_json()))) == schema
    assert "encoders" not in Schema("tags").to_json()  # as version 0.1 wrote it
    with pytest.raises(ValueError, match=r"pass what Schema\.to_json\(\) returned"):
        Schema.from_json(Schema("tags").to_json() | {"encoders": [{"column": 3}]})
    with pytest.raises(ValueError, match="one of encoders"):
        Schema("tags", encoders=["efficientnet-lite0"])


@pytest.mark.parametrize(
    "change", [{"weights": "other"}, {"preparation": "32x32"}, {"reduction": None}, {"reduction": "other"}]
)
def test_features_of_another_encoder_are_refused(change):
    with pytest.raises(ValueError, match=r"new has features of 'photo' from the encoder .*; encode the rows with"):
        check_encoders([replace(MADE, **change)], [MADE], "new")


def test_names_and_versions_may_differ():
    check_encoders([replace(MADE, encoder="onnx:/moved.onnx", version="2.0")], [MADE], "new")
    check_encoders([MADE], [], "new")


def test_features_without_an_encoder_cause_a_warning():
    with pytest.warns(UserWarning, match=r"new\.csv does not say which encoder"):
        check_encoders([], [MADE], "new.csv")


def test_rows_to_clean_are_compared_too(tmp_path):
    files.write(attach(table(), MADE), tmp_path / "t.parquet")
    like = read_labelled(tmp_path / "t.parquet", Schema("tags")).schema
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        read_labelled(tmp_path / "t.parquet", Schema(), like=like)
    files.write(attach(table(), replace(MADE, weights="other")), tmp_path / "t.parquet")
    with pytest.raises(ValueError, match=r"t\.parquet has features of 'photo' from the encoder"):
        read_labelled(tmp_path / "t.parquet", Schema(), like=like)
