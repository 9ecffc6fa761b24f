import numpy as np
import pytest
import scipy.io
import scipy.sparse

from candidly.data.readers import mat, mat5
from tests.data.made import fields_of, toy


def rows_first(dataset):
    truth = np.eye(len(dataset.classes))[dataset.y]
    return {"features": dataset.X, "p_labels": dataset.S.astype(float), "logitlabels": truth}


@pytest.mark.parametrize("compress", [False, True])
@pytest.mark.parametrize("layout", [fields_of, rows_first])
@pytest.mark.parametrize("convert", [np.asarray, scipy.sparse.csc_matrix, scipy.sparse.csc_array])
def test_dense_and_sparse(tmp_path, layout, convert, compress):
    dataset = toy()
    fields = {field: convert(value) for field, value in layout(dataset).items()}
    scipy.io.savemat(tmp_path / "toy.mat", fields, do_compression=compress)
    X, S, y = mat.read(tmp_path / "toy.mat")
    assert (X.dtype, S.dtype, y.dtype) == (np.float64, np.bool_, np.int64)
    np.testing.assert_array_equal(X, dataset.X)
    np.testing.assert_array_equal(S, dataset.S)
    np.testing.assert_array_equal(y, dataset.y)


def marked(row, value):
    """Candidates that are all marked with 1, but for one."""
    candidates = np.ones((6, 300))
    candidates[3, row] = value
    return candidates


@pytest.mark.parametrize("mark", [1, 7, 0.5])
def test_other_marks(tmp_path, mark):
    fields = fields_of(toy())
    fields |= {name: fields[name] * mark for name in ("partial_target", "target")}
    scipy.io.savemat(tmp_path / "toy.mat", fields)
    np.testing.assert_array_equal(mat.read(tmp_path / "toy.mat")[1], toy().S)


@pytest.mark.parametrize("level", ["5", "4"])
def test_looks_at_the_content_once(tmp_path, monkeypatch, level):
    looked, whosmat = [], scipy.io.whosmat
    monkeypatch.setattr(mat, "variables", lambda content: looked.append(5) or mat5.variables(content))
    monkeypatch.setattr(scipy.io, "whosmat", lambda content: looked.append(4) or whosmat(content))
    scipy.io.savemat(tmp_path / "toy.mat", fields_of(toy()), format=level)
    mat.read(tmp_path / "toy.mat")
    assert looked == [int(level)]


def test_integer_features(tmp_path):
    fields = {"data": np.array([[1], [2]], dtype=np.uint8), "partial_target": np.eye(2), "target": np.eye(2)}
    scipy.io.savemat(tmp_path / "toy.mat", fields)
    assert mat.read(tmp_path / "toy.mat")[0].dtype == np.float64


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"target": None}, "has no field target; it holds data, partial_target"),
        ({"data": np.zeros((299, 5))}, r"data \(299, 5\).*partial_target \(6, 300\)"),
        ({"partial_target": np.ones((300, 6))}, r"partial_target \(300, 6\).*target \(6, 300\)"),
        ({"data": "text"}, "data should be a real matrix"),
        ({"data": np.zeros((300, 5)) * 1j}, "data should be a real matrix.*complex128"),
        ({"target": np.zeros((6, 300))}, "row 0 has 0 true labels in target"),
        ({"target": np.ones((6, 300))}, "row 0 has 6 true labels in target"),
        ({"data": np.array([[1, "a"]], dtype=object)}, "data should be a real matrix"),
        ({"target": np.eye(6)[:, np.arange(300) % 6] * -1}, "row 0 holds -1.0 in target, which marks classes with one"),
        ({"partial_target": marked(7, np.nan)}, "row 7 holds nan in partial_target"),
        ({"partial_target": marked(7, np.inf)}, "row 7 holds inf in partial_target"),
        ({"partial_target": marked(7, -1)}, "row 7 holds -1.0 in partial_target"),
        ({"partial_target": marked(7, 0.5)}, "row 7 holds 0.5 in partial_target"),
    ],
)
def test_rejects(tmp_path, change, message):
    fields = {field: value for field, value in (fields_of(toy()) | change).items() if value is not None}
    scipy.io.savemat(tmp_path / "toy.mat", fields)
    with pytest.raises(ValueError, match=message):
        mat.read(tmp_path / "toy.mat")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"logitlabels": None}, "has no field logitlabels; it holds features, p_labels"),
        ({"p_labels": np.ones((6, 300))}, r"p_labels \(6, 300\) and logitlabels \(300, 6\) both \(n, C\)"),
        ({"logitlabels": np.zeros((300, 6))}, "row 0 has 0 true labels in logitlabels"),
    ],
)
def test_rejects_rows_first(tmp_path, change, message):
    fields = {field: value for field, value in (rows_first(toy()) | change).items() if value is not None}
    scipy.io.savemat(tmp_path / "toy.mat", fields)
    with pytest.raises(ValueError, match=message):
        mat.read(tmp_path / "toy.mat")


def test_rejects_an_empty_file(tmp_path):
    scipy.io.savemat(tmp_path / "toy.mat", {})
    with pytest.raises(ValueError, match="has no field data, partial_target, target; it holds nothing"):
        mat.read(tmp_path / "toy.mat")


@pytest.mark.parametrize(
    "damage", [lambda raw: b"", lambda raw: b"<html>" * 99, lambda raw: raw[:200], lambda raw: raw[:-9]]
)
def test_rejects_damaged_files(tmp_path, damage):
    path = tmp_path / "toy.mat"
    scipy.io.savemat(path, fields_of(toy()), do_compression=True)
    path.write_bytes(damage(path.read_bytes()))
    with pytest.raises(ValueError, match=r"toy\.mat is not a readable \.mat file"):
        mat.read(path)


def test_rejects_hdf5(tmp_path):
    header = b"MATLAB 7.3 MAT-file".ljust(124) + b"\x00\x02IM"
    (tmp_path / "toy.mat").write_bytes(header + bytes(400))
    with pytest.raises(ValueError, match=r"format 7\.3"):
        mat.read(tmp_path / "toy.mat")


def test_missing_file(tmp_path):
    with pytest.raises(FileNotFoundError):
        mat.read(tmp_path / "nothing.mat")


def test_rejects_shapes_that_cannot_be(tmp_path):
    path = tmp_path / "toy.mat"
    scipy.io.savemat(path, fields_of(toy()))
    content = path.read_bytes()
    shape, claimed = (np.array(shape, np.int32).tobytes() for shape in ((300, 5), (2**30, 2**20)))
    assert content.count(shape) == 1
    path.write_bytes(content.replace(shape, claimed))
    with pytest.raises(ValueError, match=r"data of shape \(1073741824, 1048576\) takes at least 8.0 PiB of"):
        mat.read(path)


def test_rejects_sparse_matrices_too_large_to_be_dense(tmp_path):
    scipy.io.savemat(tmp_path / "toy.mat", fields_of(toy()) | {"data": scipy.sparse.csc_matrix((2**30, 3))})
    with pytest.raises(ValueError, match=r"data of shape \(1073741824, 3\) takes at least 24.0 GiB of memory"):
        mat.read(tmp_path / "toy.mat")
