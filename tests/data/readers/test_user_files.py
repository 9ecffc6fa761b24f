import numpy as np
import pytest
import scipy.io

from candidly.data import dataset, load
from candidly.data.protocols import PROTOCOLS
from candidly.data.readers.user_files import dataset_name
from tests.data.made import fields_of, toy


def arrays():
    dataset = toy()
    return {"X": dataset.X, "S": dataset.S, "y": dataset.y, "classes": np.array(dataset.classes)}


@pytest.mark.parametrize(
    ("path", "name"),
    [
        ("birds.csv", "birds"),
        ("/a/My Birds (2).PARQUET", "my-birds--2-"),
        ("v1.2+x_y z.npz", "v1.2+x_y-z"),
        ("Vögel.mat", "v-gel"),
        ("birds.CSV.gz", "birds"),
        ("birds.2.tsv", "birds.2"),
    ],
)
def test_names(path, name):
    assert dataset_name(path) == name


@pytest.mark.parametrize("convert", [str, lambda path: path])
def test_mat(tmp_path, convert):
    scipy.io.savemat(tmp_path / "Lost 2.mat", fields_of(toy()))
    dataset = load(convert(tmp_path / "Lost 2.mat"))
    assert dataset.name == "lost-2"
    assert dataset.classes == tuple("012345")
    np.testing.assert_array_equal(dataset.S, toy().S)
    np.testing.assert_array_equal(dataset.X, toy().X)


def test_mat_is_checked(tmp_path):
    fields = fields_of(toy())
    fields["partial_target"][:, 17] = 0
    scipy.io.savemat(tmp_path / "toy.mat", fields)
    with pytest.raises(ValueError, match=r"toy.mat: row 17 has no candidates; drop it"):
        load(tmp_path / "toy.mat")
    scipy.io.savemat(tmp_path / "toy.mat", fields_of(toy()) | {"data": np.full((300, 1), np.nan)})
    with pytest.raises(ValueError, match=r"toy.mat: row 0 of X holds a value that is not finite"):
        load(tmp_path / "toy.mat")


@pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
def test_npz(tmp_path, save):
    save(tmp_path / "toy.npz", **arrays())
    dataset = load(tmp_path / "toy.npz")
    assert dataset.name == "toy"
    assert dataset.classes == tuple("abcdef")
    assert dataset.y.dtype == np.int64
    for field in ("X", "S", "y"):
        np.testing.assert_array_equal(getattr(dataset, field), arrays()[field])


def test_npz_with_a_split(tmp_path):
    np.savez(tmp_path / "toy.npz", **arrays(), num_train=250)
    found = load(tmp_path / "toy.npz")
    assert found.num_train == 250
    train, test = PROTOCOLS["default"].rows(found, seed=3)
    assert (len(train), len(test)) == (250, 50)


@pytest.mark.parametrize("groups", [np.arange(300) // 7 - 3, np.array([f"scene {i // 7:03}" for i in range(300)])])
def test_npz_with_groups(tmp_path, groups):
    np.savez(tmp_path / "toy.npz", **arrays(), groups=groups)
    found = load(tmp_path / "toy.npz").groups
    assert found.dtype == np.int64
    np.testing.assert_array_equal(found, np.arange(300) // 7)


def test_npz_with_the_least(tmp_path):
    np.savez(tmp_path / "toy.npz", X=np.array([[1], [2]]), S=np.array([[1, 0], [1, 1]]))
    dataset = load(tmp_path / "toy.npz")
    assert dataset.y is None
    assert dataset.classes == ("0", "1")
    assert (dataset.X.dtype, dataset.S.dtype) == (np.float64, np.bool_)


@pytest.mark.parametrize(
    ("X", "dtype"),
    [
        (np.zeros((2, 3), np.float32), np.float32),
        (np.zeros((2, 3), np.float16), np.float64),
        (np.zeros((2, 3), np.uint8), np.float64),
        (np.zeros((2, 4, 4), np.uint8), np.uint8),
        (np.zeros((2, 3, 4, 4), np.uint8), np.uint8),
    ],
)
def test_npz_types(tmp_path, X, dtype):
    np.savez(tmp_path / "toy.npz", X=X, S=np.array([[1, 0], [1, 1]]))
    assert load(tmp_path / "toy.npz").X.dtype == dtype


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"S": None}, "has no array S; it holds X, classes, y"),
        ({"X": np.zeros(300)}, r"X is \(300,\) of type float64"),
        ({"X": np.full((300, 2), "a")}, r"X is \(300, 2\) of type <U1"),
        ({"X": np.zeros((299, 2))}, "the numbers of rows differ: X has 299, S 300, y 300"),
        (
            {"S": np.full((300, 6), 0.5)},
            r"S is \(300, 6\) of type float64; save a matrix \(rows, classes\) of booleans",
        ),
        ({"S": np.zeros((300, 6), bool)}, r"row 0 has no candidates \(and 299 more rows\)"),
        ({"y": np.zeros(299, int)}, "the numbers of rows differ"),
        ({"y": np.zeros(300)}, r"y is \(300,\) of type float64; save one class number per row"),
        ({"y": np.arange(300)}, "row 6 has the label 6, but there are 6 classes"),
        ({"y": np.arange(300) - 1}, "row 0 has the label -1"),
        ({"X": np.where(np.arange(300)[:, None] == 7, np.inf, 0.0)}, "row 7 of X holds a value that is not finite"),
        ({"classes": np.array(["a", "b"])}, "2 class names for 6 columns of S"),
        ({"classes": np.array(list("abcdea"))}, "class 'a' is listed twice"),
        ({"classes": np.zeros((2, 3))}, r"classes is \(2, 3\) of type float64"),
        ({"X": np.array([{}] * 300, dtype=object)}, "Python objects and records are not read"),
        ({"X": np.zeros((300, 1, 2, 2, 2))}, r"X is \(300, 1, 2, 2, 2\) of type float64; save numbers"),
        ({"X": np.zeros((300, 0))}, r"X is \(300, 0\), without features"),
        ({"X": np.zeros((300, 4, 0), np.uint8)}, r"X is \(300, 4, 0\), without features"),
        (
            {"X": np.zeros((300, 8, 8, 3), np.uint8)},
            r"images with 8 channels; transpose it to \(rows, channels, height",
        ),
        ({"X": np.full((300, 1), np.finfo(np.longdouble).max)}, "row 0 of X holds a value that is not finite"),
        ({"S": np.ones((300, 1), bool), "classes": None}, "the number of classes is 1; S must have at least two"),
        ({"classes": np.array(["a"] * 7)}, "7 class names for 6 columns of S"),
        ({"groups": np.zeros(300)}, r"groups is \(300,\) of type float64; save one integer or text per row"),
        ({"num_train": np.array([250])}, r"num_train is \(1,\) of type int64; save one integer"),
        ({"num_train": 2.5}, r"num_train is \(\) of type float64; save one integer"),
        ({"num_train": 300}, "num_train is 300; save an integer from 1 to 299, so that test rows follow"),
        ({"num_train": 0}, "num_train is 0; save an integer from 1 to 299"),
        ({"groups": np.zeros((300, 1), int)}, r"groups is \(300, 1\) of type int64"),
        ({"groups": np.zeros(299, int)}, "the numbers of rows differ: X has 300, S 300, y 300, groups 299"),
    ],
)
def test_npz_rejects(tmp_path, change, message):
    np.savez(tmp_path / "toy.npz", **{k: v for k, v in (arrays() | change).items() if v is not None})
    with pytest.raises(ValueError, match=f"toy.npz.*{message}"):
        load(tmp_path / "toy.npz")


def test_warns_once_of_labels_that_are_no_candidates(tmp_path):
    changed = arrays()
    S, y = changed["S"], changed["y"]
    S[[7, 250], :] = True
    S[[7, 250], y[[7, 250]]] = False
    np.savez(tmp_path / "toy.npz", **changed)
    with pytest.warns(UserWarning, match="true label") as caught:
        dataset = load(tmp_path / "toy.npz")
    np.testing.assert_array_equal(dataset.S, S)
    assert [str(warning.message) for warning in caught] == [
        f"{tmp_path / 'toy.npz'}: in 2 of 300 rows (0.67%) the true label is not among the candidates, first in row 7; "
        "check separator and spelling: methods assume that it is"
    ]
    assert caught[0].filename == __file__, "it points at the caller"


def test_names_are_counted_before_they_are_read(tmp_path, monkeypatch):
    read = []
    np.savez(tmp_path / "toy.npz", **arrays() | {"classes": np.arange(10**5)})
    monkeypatch.setattr(dataset, "class_names", read.append)
    with pytest.raises(ValueError, match="100000 class names for 6 columns of S"):
        load(tmp_path / "toy.npz")
    assert not read
