"""Features: tables, arrays and tensors to a matrix; against scikit-learn's scaler, encoder and imputer."""

import copy
import datetime
import json
import math
import re
import time
import warnings
from dataclasses import FrozenInstanceError
from decimal import Decimal
from fractions import Fraction

import numpy as np
import pytest
import scipy.sparse
import torch
from hypothesis import given
from hypothesis import strategies as st
from sklearn.impute import SimpleImputer
from sklearn.preprocessing import OneHotEncoder, StandardScaler

from candidly.tables.columns import read
from candidly.tables.features import Features

pd = pytest.importorskip("pandas")
pa = pytest.importorskip("pyarrow")

HOSTILE = [
    "",
    "=",
    "a\nb",
    'q"uote',
    "'; DROP",
    "nul\x00",
    "é\u202e",
    "\ufffe",
    "x0 missing",
    "__proto__",
    "ünï",
    " sp ",
]
DAY = 86400.0


def numbers(n=60, d=4, seed=0):
    return np.random.default_rng(seed).normal([3, -2, 1e4, 0], [1, 5, 20, 1e-3], size=(n, 4))[:, :d]


def frame(n=40, seed=0):
    rng = np.random.default_rng(seed)
    colour = rng.choice(["red", "blue", "green"], n)
    return pd.DataFrame({"age": rng.normal(40, 9, n), "colour": colour, "smokes": rng.random(n) < 0.4})


def encoded(X, **options):
    return Features.fit(X, **options).transform(X)


def stored(features):
    return Features.from_json(json.loads(json.dumps(features.to_json())))


def raises(message, call, error=ValueError):
    """Check that the message holds these words and is one line."""
    with pytest.raises(error, match=re.escape(message)) as caught:
        call()
    assert "\n" not in str(caught.value)


def warned(features, X):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        Z = features.transform(X)
    return Z, [str(warning.message) for warning in caught]


# Numbers


@pytest.mark.parametrize("dtype", ["f2", "f4", "f8", "g", "i1", "u1", "i4", "u8", "i8"])
def test_numbers_are_standardised_like_scikit_learns(dtype):
    X = (numbers() % 50).astype(dtype)
    Z = encoded(X)
    assert Z.dtype == np.float32
    np.testing.assert_allclose(Z, StandardScaler().fit_transform(X.astype(float)), atol=2e-6)


def test_new_rows_are_standardised_by_the_old_ones():
    X, new = numbers(seed=0), numbers(seed=1)
    np.testing.assert_allclose(
        Features.fit(X).transform(new), StandardScaler().fit(X).transform(new), rtol=1e-5, atol=1e-6
    )


def test_truth_values_are_numbers():
    X = np.random.default_rng(0).random((30, 2)) < 0.3
    np.testing.assert_allclose(encoded(X), StandardScaler().fit_transform(X.astype(float)), rtol=1e-6)


def test_missing_numbers_become_the_mean_and_are_marked():
    X = numbers()
    X[np.random.default_rng(1).random(X.shape) < 0.2] = np.nan
    X[:, 3] = numbers()[:, 3]
    features = Features.fit(X)
    imputer = SimpleImputer(add_indicator=True)
    oracle = imputer.fit_transform(X)
    values, marks = (oracle[:, :4] - np.nanmean(X, 0)) / np.nanstd(X, 0), oracle[:, 4:]
    Z = features.transform(X)
    assert features.encoded_names == ["x0", "x0 missing", "x1", "x1 missing", "x2", "x2 missing", "x3"]
    np.testing.assert_allclose(Z[:, [0, 2, 4, 6]], values, rtol=1e-4, atol=1e-6)
    np.testing.assert_array_equal(Z[:, [1, 3, 5]], marks)


def test_a_gap_that_is_new_is_the_mean_and_one_warning():
    features = Features.fit(pd.DataFrame({"a": [1.0, 3.0], "b": ["x", "y"], "c": [1.0, None]}))
    Z, messages = warned(features, pd.DataFrame({"a": [None, 3.0], "b": [None, "y"], "c": [None, None]}))
    assert Z.tolist() == [[0, 0, 0, 0, 1], [1, 0, 1, 0, 1]]
    assert len(messages) == 1
    assert "in column 'a', column 'b', where" in messages[0]


@pytest.mark.parametrize("value", [0.0, 5.0, 0.1, -1e300, 1e-320])
def test_constant_columns_are_zero_even_in_rows_where_they_are_not(value):
    X = np.full((1001, 1), value)
    features = Features.fit(X)
    assert features.columns[0].mean == value
    assert not features.transform(X).any()
    assert features.transform([[7.0]]).tolist() == [[0]]
    assert features.describe() == ["1 constant column set to 0: column 0"]


def test_rounding_is_no_variation():
    assert not encoded(np.array([[0.1 + 0.2], [0.3], [0.3]])).any()


def test_one_row_is_constant():
    assert encoded([[1.0, 2.0]]).tolist() == [[0, 0]]


@pytest.mark.parametrize("value", [None, math.nan, pd.NA, pd.NaT])
def test_all_that_means_missing(value):
    X = np.full((3, 1), value, dtype=object)
    assert encoded(X).tolist() == [[0, 1]] * 3
    assert encoded(pd.DataFrame({"a": X[:, 0]})).tolist() == [[0, 1]] * 3
    for other in ("x", 1.0, datetime.date(2020, 1, 1)):
        X[0, 0] = other
        assert encoded(X)[:, -1].tolist() == encoded(pd.DataFrame({"a": X[:, 0]}))[:, -1].tolist() == [0, 1, 1]


def test_a_column_without_values():
    features = Features.fit([[None, 1.0], [None, 2.0]])
    assert features.transform([[None, 1.0]]).tolist() == [[0, 1, -1]]
    assert "column 0: no values at all, with an indicator column" in features.describe()


@pytest.mark.parametrize("unit", [1e-320, 1e-300, 1e-160, 1.0, 1e39, 1e160, 1e300, 5e307])
def test_numbers_beyond_single_precision_and_at_the_ends_of_double(unit):
    X = np.array([[-3.0], [1.0], [3.0], [3.0]])
    np.testing.assert_allclose(
        encoded(X * unit), StandardScaler().fit_transform(X), rtol=1e-3 if unit < 1e-310 else 1e-6
    )


def test_far_numbers_stay_finite():
    features = Features.fit([[1.0, -1.7e308], [2.0, 1.7e308]])
    assert features.transform([[1e308, 1.7e308], [-1e308, 0.0]]).tolist() == [[1e6, 1], [-1e6, 0]]


@pytest.mark.parametrize("sign", [1, -1])
@pytest.mark.parametrize("make", [np.array, pd.DataFrame, torch.tensor, scipy.sparse.csr_array, list])
def test_infinite_numbers_are_refused_where_they_are(make, sign):
    X = numbers(5, 3).tolist()
    features = Features.fit(X)
    X[3][1] = sign * math.inf
    for call in (lambda: Features.fit(make(X)), lambda: features.transform(make(X))):
        raises(f"X has {sign * math.inf} in row 3, column 1; ", call)


def test_infinite_numbers_of_a_table_are_named():
    raises("X has inf in row 1, column 'b'; ", lambda: Features.fit(pd.DataFrame({"a": [1, 2], "b": [1, np.inf]})))
    raises("column 0 has a number beyond double precision", lambda: Features.fit([[10**400], [None]]))
    raises("X has inf in row 0, column 0", lambda: Features.fit(np.array([[np.finfo("g").max]])))


# Categories


def test_categories_are_encoded_like_scikit_learns():
    X = np.random.default_rng(0).choice(["b", "a", "ä", "Z", "10"], (50, 3)).astype(object)
    oracle = OneHotEncoder(sparse_output=False).fit(X)
    features = Features.fit(X)
    np.testing.assert_array_equal(features.transform(X), oracle.transform(X))
    assert features.encoded_names == [name.replace("_", "=", 1) for name in oracle.get_feature_names_out()]
    np.testing.assert_array_equal(encoded(X.astype(str)), oracle.transform(X))


def test_missing_is_a_category_if_it_was_seen():
    X = np.array([["a"], [None], ["b"], [np.nan]], dtype=object)
    features = Features.fit(X)
    assert features.encoded_names == ["x0=a", "x0=b", "x0 missing"]
    assert features.transform(X).tolist() == [[1, 0, 0], [0, 0, 1], [0, 1, 0], [0, 0, 1]]
    assert features.describe() == ["column 0: 3 categories, one of them for 2 missing values"]


def test_rare_categories_share_a_column():
    X = [[value] for value in "aaabbbccde"]
    features = Features.fit(X, max_categories=2)
    assert features.encoded_names == ["x0=a", "x0=b", "x0 other"]
    oracle = OneHotEncoder(max_categories=3, sparse_output=False).fit(X)
    np.testing.assert_array_equal(features.transform(X), oracle.transform(X))
    assert features.describe() == ["column 0: 2 categories; 3 rarer ones share the column 'other'"]
    Z, messages = warned(features, [["e"], ["f"]])
    assert Z.tolist() == [[0, 0, 1], [0, 0, 0]]
    assert len(messages) == 1


def test_ties_go_to_the_first_in_the_alphabet():
    assert Features.fit([["c"], ["b"], ["a"], ["c"], ["b"], ["a"]], max_categories=2).columns[0].values == ("a", "b")


def test_new_categories_are_zero_and_one_warning():
    features = Features.fit(pd.DataFrame({"a": ["x", "y", "x"], "b": ["u", "v", "u"]}))
    new = pd.DataFrame({"a": ["x", "new", "new2"], "b": ["w" * 100, "u", "u"]})
    Z, messages = warned(features, new)
    assert Z.tolist() == [[1, 0, 0, 0], [0, 0, 1, 0], [0, 0, 1, 0]]
    assert len(messages) == 1
    assert "'new' in column 'a', 'new2' in column 'a', 'wwwwwwwwwwww...wwwwwwwwwwwww' in column 'b'" in messages[0]
    _, messages = warned(features, pd.DataFrame({"a": [f"n{i}" for i in range(9)], "b": ["u"] * 9}))
    assert messages[0].endswith("'n4' in column 'a' and 4 more")


def test_ids_are_refused():
    X = pd.DataFrame({"a": [1.0] * 60, "id": [f"id{i}" for i in range(60)]})
    raises("column 'id' has 60 different texts in 60 rows, like an id; drop it", lambda: Features.fit(X))
    assert Features.fit(X, max_categories=60).width == 61
    assert Features.fit(pd.concat([X, X]).iloc[:, 1:]).width == 51


@pytest.mark.parametrize("most", [0, -1, 2.5, True, "3", None])
def test_max_categories_is_checked(most):
    raises(f"max_categories is {most!r}; it must be an integer", lambda: Features.fit([[1.0]], max_categories=most))


def test_text_that_is_numbers_in_all_rows_is_numbers():
    X = np.array([["1", " 2.5 "], ["-3e2", None], ["4", "x"]], dtype=object)
    features = Features.fit(X)
    assert [type(column).__name__ for column in features.columns] == ["Number", "Category"]
    np.testing.assert_allclose(
        features.transform(X)[:, :1], StandardScaler().fit_transform([[1], [-300], [4]]), rtol=1e-6
    )
    assert "column 0: text read as numbers" in features.describe()
    assert Features.fit([["1_0"], ["10"]]).encoded_names == ["x0=10", "x0=1_0"]
    assert Features.fit([["1", 2, None, True]] * 3).width == 5
    raises("X has 'x' in row 1, column 0, which held numbers in fit; correct it",
           lambda: features.transform([["1", "x"], ["x", "x"]]))  # fmt: skip


def test_numbers_of_all_sorts_in_an_object_column():
    values = [Decimal("0.5"), Fraction(3, 2), np.float32(2), True, np.bool_(False), np.int8(7), 2**70]
    with pytest.warns(UserWarning, match=r"these become equal: 1\.18059e\+21 in row 6 of column 0; correct or remove"):
        features = Features.fit([[value, i] for i, value in enumerate(values)])
    assert features.columns[0].mean == np.mean([0.5, 1.5, 2, 1, 0, 7, 2.0**70])


@pytest.mark.parametrize("value", [1e10, 1e39, 1e300, -1e300, 1.7e308])
@pytest.mark.parametrize("rows", [5, 60, 500])
def test_a_value_that_makes_the_others_equal_is_named(value, rows):
    X = np.random.default_rng(0).normal(size=(rows, 2))
    X[3, 1] = value
    text = rf"these become equal: {value:g} in row 3 of column 'b'; correct or remove them".replace("+", r"\+")
    with pytest.warns(UserWarning, match=text):
        Features.fit(pa.table({"a": X[:, 0], "b": X[:, 1]}))
    with pytest.raises(ValueError, match=text.replace("'b'", "0")):
        Features.fit(X[:, 1:])


def test_heavy_tails_and_rare_values_are_no_extremes(recwarn):
    rng = np.random.default_rng(0)
    Features.fit(np.stack([rng.standard_cauchy(1000), rng.lognormal(0, 5, 1000), np.arange(1000) == 5], 1))
    Features.fit([[0.0], [0.0], [0.0], [0.0], [1e300]])  # the others are equal before
    assert not recwarn.list


def test_numbers_beside_text_are_categories():
    X = [["a"], [1], [2.5], [True], [1.0], ["1"], [b"a"], [1]]
    assert Features.fit(X).columns[0].values == ("1", "2.5", "a")
    assert encoded(X).argmax(1).tolist() == [2, 0, 1, 0, 0, 0, 2, 0]


def test_categories_that_come_back_as_numbers_are_known():
    features = Features.fit([["1"], ["2"], ["x"], [None]])
    Z = [[0, 1, 0, 0], [1, 0, 0, 0], [0, 0, 0, 1]]
    assert features.transform(np.array([[2.0], [1.0], [np.nan]])).tolist() == Z
    assert features.transform([[2], [1], [None]]).tolist() == Z
    numeric = Features.fit([[1.0], [3.0]])
    assert numeric.transform(pd.DataFrame({0: pd.Categorical([3, 1])})).tolist() == [[1], [-1]]


def test_a_category_means_the_same_alone_and_among_others():
    X = np.array([["007"], [1.50], ["1.50"], [True], ["nan"], [2**60 + 1], [2**60], ["x"]], dtype=object)
    features = Features.fit(X)
    alone = np.concatenate([features.transform(X[[i]]) for i in range(len(X))])
    np.testing.assert_array_equal(alone, features.transform(X))
    np.testing.assert_array_equal(features.transform(np.array([[2**60 + 1]])), alone[[5]])
    np.testing.assert_array_equal(features.transform(np.array([[True]])), alone[[3]])
    np.testing.assert_array_equal(features.transform(pd.DataFrame({0: [2**60 + 1, 2**60]})), alone[[5, 6]])
    np.testing.assert_array_equal(features.transform(scipy.sparse.csr_array([[1.5], [1.0]])), alone[[1, 3]])
    assert features.width == 8


def test_surrogates_are_kept():
    X = [["\ud800"], ["\udfff"]]
    assert stored(Features.fit(X)).transform(X).tolist() == [[1, 0], [0, 1]]


def test_the_order_of_rows_does_not_matter():
    X = frame()
    assert Features.fit(X.iloc[::-1]).columns[1] == Features.fit(X).columns[1]


# Dates


@pytest.mark.parametrize("unit", ["s", "ms", "us", "ns"])
def test_dates_are_seconds(unit):
    values = np.array(["1970-01-02", "NaT", "2020-02-29"], dtype=f"M8[{unit}]")
    for X in (values[:, None], pd.DataFrame({"d": values}), pa.table({"d": pa.array(values)})):
        features = Features.fit(X)
        assert features.columns[0].mean == (DAY + 18321 * DAY) / 2
        assert features.transform(X).tolist() == [[-1, 0], [0, 1], [1, 0]]
        assert any(line.endswith(": dates as seconds since 1970") for line in features.describe())


def test_dates_as_objects():
    zone = datetime.timezone(datetime.timedelta(hours=2))
    when = [datetime.datetime(1970, 1, 2), datetime.datetime(1970, 1, 2, 2, tzinfo=zone), datetime.date(1970, 1, 2)]
    X = np.array([[value] for value in [*when, pd.Timestamp("1970-01-02"), None, pd.NaT, math.nan]], dtype=object)
    assert Features.fit(X).columns[0] == Features.fit([[when[0]], [None], [None], [None]]).columns[0]
    assert Features.fit(X).columns[0].mean == DAY
    raises("column 0 mixes date and text values; ", lambda: Features.fit([["x"], [when[0]]]))


def test_durations_are_seconds():
    X = pd.DataFrame({"t": pd.to_timedelta([1, 3], unit="min")})
    for each in (X, X.to_numpy(), [[datetime.timedelta(minutes=1)], [datetime.timedelta(minutes=3)]], pa.table(X)):
        features = Features.fit(each)
        assert features.columns[0].mean == 120
        assert features.describe()[-1].endswith(": durations as seconds")


def test_dates_and_numbers_do_not_mix():
    dates = Features.fit(np.array([["2020-01-01"], ["2020-01-02"]], dtype="M8[s]"))
    raises("column 0 of X has numbers but held dates in fit", lambda: dates.transform([[1.0]]))
    raises("column 0 of X has dates but held numbers in fit",
           lambda: Features.fit([[1.0]]).transform([[datetime.date(2020, 1, 1)]]))  # fmt: skip
    assert warned(dates, [[None]])[0].tolist() == [[0]]


# What X may be


def test_every_kind_of_table_gives_the_same():
    X = frame()
    X.loc[3, "age"] = np.nan
    X.loc[[5, 7], "colour"] = None
    X["when"] = pd.date_range("2020-01-01", periods=len(X))
    X["size"] = pd.Categorical(np.resize(["S", "M", None, "L"], len(X)))
    X["count"] = pd.array(np.resize([1, 2, None], len(X)), dtype="Int64")
    features, Z = Features.fit(X), encoded(X)
    tables = [
        pa.Table.from_pandas(X),
        X.astype({"colour": object, "count": object}),
        X.astype({"colour": "string", "smokes": "boolean"}),
        X.astype({"colour": "category"}),
        X.convert_dtypes(dtype_backend="pyarrow"),
        X.set_index(np.zeros(len(X))),
    ]
    for table in tables:
        assert Features.fit(table) == features
        np.testing.assert_array_equal(features.transform(table), Z)
    array = Features.fit(X.to_numpy(dtype=object))
    assert array.columns == features.columns
    np.testing.assert_array_equal(array.transform(X.to_numpy(dtype=object).tolist()), Z)


def test_polars():
    pl = pytest.importorskip("polars")
    X = pl.DataFrame({
        "a": [1, None, 3], "b": ["x", None, "y"], "c": pl.Series(["u", None, "v"], dtype=pl.Categorical),
        "d": [datetime.date(2020, 1, 1), None, datetime.date(2020, 1, 3)], "e": [True, False, None], "f": [None] * 3,
        "g": pl.Series(["u", "v", "v"], dtype=pl.Enum(["v", "u"])), "h": [1.0, math.nan, 2.0],
    })  # fmt: skip
    features = Features.fit(X)
    assert features.names_ == tuple("abcdefgh")
    np.testing.assert_array_equal(features.transform(X.select(X.columns[::-1])), features.transform(X))
    assert features == Features.fit(X.to_arrow())
    raises("X is a lazy LazyFrame; compute it first", lambda: Features.fit(X.lazy()))


def test_nulls_of_arrows_dictionaries_are_missing():
    X = pa.table({"c": pa.array(["x", None, "y", "y"]).dictionary_encode()})
    assert encoded(X).tolist() == [[1, 0, 0], [0, 0, 1], [0, 1, 0], [0, 1, 0]]


def test_arrow_types_that_no_other_table_has():
    X = pa.table({"none": pa.nulls(2), "day": pa.array([0, 86_400_000], pa.date64()), "bytes": [b"x", b"\xff"]})
    assert Features.fit(X).encoded_names == ["none", "none missing", "day", "bytes=\\xff", "bytes=x"]
    assert encoded(X).tolist() == [[0, 1, -1, 0, 1], [0, 1, 1, 1, 0]]
    raises(
        "X has type Struct({'b': Int64}) in column 'a'", lambda: Features.fit(pa.table({"a": [{"b": 1}]})), TypeError
    )


def test_categorical_dtypes_stay_categories():
    X = pd.DataFrame(
        {"a": pd.Categorical([10, 9, None, 10]), "b": pd.Categorical(["1", "2", "1", "1"], ["3", "2", "1"])}
    )
    features = Features.fit(X)
    assert features.encoded_names == ["a=10", "a=9", "a missing", "b=1", "b=2"]
    assert features.transform(X).tolist() == [[1, 0, 0, 1, 0], [0, 1, 0, 0, 1], [0, 0, 1, 1, 0], [1, 0, 0, 1, 0]]


def test_intervals_are_categories():
    X = pd.DataFrame({"a": pd.cut([1.0, 4.0, math.nan, 6.0, 1.5], [0, 2, 5, 9])})
    features = Features.fit(X)
    assert features.encoded_names == ["a=(0, 2]", "a=(2, 5]", "a=(5, 9]", "a missing"]
    np.testing.assert_array_equal(features.transform(X), np.eye(4)[[0, 1, 3, 2, 0]])
    np.testing.assert_array_equal(features.transform(X.dropna()), np.eye(4)[[0, 1, 2, 0]])
    raises("X has a dict in row 0, column 'a'", lambda: features.transform(pd.DataFrame({"a": [{}]})), TypeError)


@pytest.mark.parametrize("unit", [1, 2**57])
def test_integers_of_any_size_and_dates_of_any_year(unit):
    arrow = pa.table({"a": pa.array([unit, None, 3 * unit], pa.uint64())})
    for X in (arrow, arrow.to_pandas(), pd.DataFrame({"a": pd.array([unit, None, 3 * unit], dtype="Int64")})):
        assert Features.fit(X).columns[0].mean == 2 * unit
        assert encoded(X).tolist() == [[-1, 0], [0, 1], [1, 0]]
    day = datetime.date(9999, 12, 31)
    for X in (pa.table({"a": [day]}), pd.DataFrame({"a": [pd.Timestamp(day)]}), [[day]]):
        assert Features.fit(X).columns[0].mean == 253402214400


@pytest.mark.parametrize("kind", ["csr", "csc", "coo", "lil", "dok", "bsr", "dia"])
@pytest.mark.parametrize("dtype", [np.float64, np.float32, np.int32, bool])
def test_sparse_matrices_are_encoded_as_dense_ones(kind, dtype):
    X = scipy.sparse.random(30, 12, 0.3, random_state=0).toarray()
    X = (X * 10).astype(dtype)
    for make in (getattr(scipy.sparse, f"{kind}_array"), getattr(scipy.sparse, f"{kind}_matrix")):
        assert Features.fit(make(X)) == Features.fit(X)
        np.testing.assert_array_equal(encoded(make(X)), encoded(X))


def test_sparse_matrices_may_lack_values():
    X = scipy.sparse.csr_array([[0.0, math.nan], [1.0, 2.0]])
    assert encoded(X).tolist() == [[-1, 0, 1], [1, 0, 0]]


def test_what_would_be_huge_is_refused_at_once():
    start = time.perf_counter()
    X = scipy.sparse.csr_array((2_000_000, 1000))
    raises("would take 7.5 GiB as a matrix of 2000000 rows and 1000 columns; ", lambda: Features.fit(X))
    features = Features.fit(scipy.sparse.csr_array((2, 1000)))
    raises("the limit is 4 GiB", lambda: features.transform(X))
    raises("X has 1000001 columns; the limit is 1000000", lambda: Features.fit(scipy.sparse.csr_array((1, 1_000_001))))
    assert time.perf_counter() - start < 5


def test_categories_may_be_huge_too_but_not_numbers(monkeypatch):
    monkeypatch.setattr("candidly.tables.columns._MOST_BYTES", 100)
    text = [[value] for value in "abcdef"]
    raises("X is sparse or has categories, and would take 0.0 GiB", lambda: encoded(text))
    assert encoded(numbers(50)).shape == encoded(pd.DataFrame(numbers(50))).shape == (50, 4)


def test_too_many_encoded_columns_are_refused(monkeypatch):
    monkeypatch.setattr("candidly.tables.features.MOST_COLUMNS", 2)
    raises("X has 3 columns when encoded; the limit is 2", lambda: Features.fit([["a"], ["b"], ["c"]]))


def test_blocks_do_not_show(monkeypatch):
    X = numbers(20, 4)
    X[2, 2] = np.nan
    whole = Features.fit(X)
    monkeypatch.setattr("candidly.tables.columns._VALUES", 50)
    assert Features.fit(X) == whole
    assert Features.fit(scipy.sparse.csr_array(X)) == whole
    np.testing.assert_array_equal(encoded(X), whole.transform(X))


@pytest.mark.parametrize(
    "dtype", [torch.float64, torch.float32, torch.float16, torch.bfloat16, torch.int64, torch.bool]
)
def test_tensors(dtype):
    X = torch.tensor(numbers()).to(dtype)
    np.testing.assert_array_equal(encoded(X), encoded(X.double().numpy()))
    assert Features.fit(X.double().requires_grad_()).width == 4
    assert Features.fit(X.to_sparse()) == Features.fit(X)


def test_masked_arrays_lack_what_is_masked():
    X = np.ma.MaskedArray([[1.0, 2], [3, 4], [99, 6]], mask=[[0, 0], [0, 0], [1, 0]])
    np.testing.assert_array_equal(encoded(X), encoded([[1.0, 2], [3, 4], [None, 6]]))


def test_any_memory_layout_and_read_only():
    X = numbers()
    X.setflags(write=False)
    for same in (np.asfortranarray(X), np.repeat(X, 2, axis=0)[::2], X.astype(">f8"), X.view(np.matrix)):
        np.testing.assert_array_equal(encoded(same), encoded(X))


@pytest.mark.parametrize("make", [np.asarray, torch.as_tensor])
def test_images_pass(make):
    images = np.random.default_rng(0).integers(0, 256, (5, 3, 4, 6)).astype(np.uint8)
    features = stored(Features.fit(make(images)))
    out = features.transform(make(images[:2]))
    assert out.dtype == np.uint8
    assert not np.shares_memory(out, images)
    np.testing.assert_array_equal(out, images[:2])
    assert (features.n_features_in_, features.width, features.names_, features.encoded_names) == (72, 72, None, [])
    assert features.describe() == ["images of shape (3, 4, 6), not changed"]
    raises("was fitted on images (uint8) of shape (3, 4, 6)", lambda: features.transform(images[:, :, :2]))
    raises("X is a table, but PartialLabelClassifier was fitted on images", lambda: features.transform([[1.0]]))
    raises("X is images of shape (3, 4, 6), but", lambda: Features.fit([[1.0]]).transform(images))
    raises("Found array with dim 4, while dim <= 2 is required", lambda: Features.fit(images.astype(float)))
    raises("0 sample(s)", lambda: Features.fit(images[:0]))


@pytest.mark.parametrize(
    ("X", "message"),
    [
        (np.array([[1j]]), "Complex data not supported"),
        ([[1j], [2]], "Complex data not supported"),
        (np.array([["a"], [1j]], dtype=object), "Complex data not supported"),
        (torch.tensor([[1j]]), "Complex data not supported"),
        (scipy.sparse.csr_array([[1j]]), "Complex data not supported"),
        ([1.0, 2.0], "Expected 2D array, got 1D array instead. Reshape your data"),
        (["a", "b"], "Expected 2D array, got 1D array instead. Reshape your data"),
        (pd.Series([1.0]), "Expected 2D array, got 1D array instead. Reshape your data"),
        (3.0, "Expected 2D array, got scalar array instead"),
        (None, "X is a NoneType; pass an array, a list of rows or a data frame"),
        ({"a": [1]}, "X is a dict; pass an array, a list of rows or a data frame"),
        (np.zeros((2, 2, 2)), "Found array with dim 3, while dim <= 2 is required"),
        (np.zeros((0, 3)), "Found array with 0 sample(s) (shape=(0, 3)) while a minimum of 1 is required."),
        (np.zeros((12, 0)), "Found array with 0 feature(s) (shape=(12, 0)) while a minimum of 1 is required."),
        (pd.DataFrame({"a": []}), "0 sample(s)"),
        (pd.DataFrame(index=[0, 1]), "0 feature(s) (shape=(2, 0)) while a minimum of 1 is required."),
        (scipy.sparse.csr_array((0, 3)), "0 sample(s)"),
        ([[1.0, 2.0], [1.0]], "X has rows of different lengths"),
        (np.zeros((2, 1), dtype="V4"), "X has dtype |V4; pass numbers or text"),
        (scipy.sparse.coo_array(np.ones(3)), "Expected 2D array, got 1D array instead. Reshape your data"),
        (pd.DataFrame([[1, 2]], columns=["a", "a"]), "X has columns of the same name"),
        (pa.table([[1], [2]], names=["a", "a"]), "X has columns of the same name"),
        (pd.DataFrame([[1, 2]], columns=["a", 5]), "names that are text, such as 'a', and 5; make all of them text"),
    ],
)  # fmt: skip
def test_what_x_may_not_be(X, message):
    raises(message, lambda: Features.fit(X))
    raises(message, lambda: Features.fit([[1.0]]).transform(X))


@pytest.mark.parametrize(
    "value", [{"foo": "bar"}, [1], np.datetime64("2020"), np.timedelta64(1, "s"), object(), datetime.time(1)]
)
def test_objects_that_are_no_values_are_refused(value):
    X = np.full((3, 2), 1.5, dtype=object)
    X[1, 1] = value
    name = type(value).__name__
    raises(
        f"X has a {name} in row 1, column 1; an argument must be a string or a number",
        lambda: Features.fit(X),
        TypeError,
    )


# Names of columns


def test_columns_are_taken_by_name():
    X = frame()
    features = Features.fit(X)
    assert features.names_ == ("age", "colour", "smokes")
    assert features.n_features_in_ == 3
    assert features.encoded_names == ["age", "colour=blue", "colour=green", "colour=red", "smokes"]
    np.testing.assert_array_equal(features.transform(X[["smokes", "colour", "age"]]), features.transform(X))


def test_columns_that_lack_or_are_new_are_listed():
    X = frame()
    features = Features.fit(X)
    raises("X lacks the columns 'age', 'smokes'; pass", lambda: features.transform(X[["colour"]]))
    raises("X has the columns 'n', which fit did not see; pass", lambda: features.transform(X.assign(n=1)))
    renamed = X.rename(columns={"age": "Age"})
    raises("X lacks the columns 'age' and has the columns 'Age', which fit", lambda: features.transform(renamed))
    many = X.assign(**{f"n{i}": 1 for i in range(8)})
    raises("'n0', 'n1', 'n2', 'n3', 'n4' and 3 more", lambda: features.transform(many))


def test_the_number_of_columns_of_an_array():
    message = "X has 3 features, but PartialLabelClassifier is expecting 4 features as input"
    raises(message, lambda: Features.fit(numbers()).transform(numbers()[:, :3]))


def test_names_that_come_or_go_warn_as_in_scikit_learn():
    table = pd.DataFrame(numbers(), columns=list("abcd"))
    _, messages = warned(Features.fit(table), numbers())
    assert messages == ["X does not have valid feature names, but PartialLabelClassifier was fitted with feature names"]
    _, messages = warned(Features.fit(numbers()), table)
    assert messages == ["X has feature names, but PartialLabelClassifier was fitted without feature names"]


def test_a_table_without_names_is_an_array():
    X = pd.DataFrame(numbers())
    assert Features.fit(X) == Features.fit(numbers())
    np.testing.assert_array_equal(Features.fit(numbers()).transform(X), encoded(numbers()))


def test_hostile_names_are_kept():
    X = pd.DataFrame(dict.fromkeys(HOSTILE, HOSTILE * 2), dtype=object)
    features = stored(Features.fit(X))
    assert features.names_ == tuple(HOSTILE)
    assert all(column.values == tuple(sorted(HOSTILE)) for column in features.columns)
    np.testing.assert_array_equal(features.transform(X), np.tile(np.eye(12)[np.argsort(np.argsort(HOSTILE))], (2, 12)))
    assert all(line.isprintable() for line in features.describe())
    raises("X lacks the columns 'a\\nb'; ", lambda: features.transform(X.drop(columns="a\nb")))
    with pytest.warns(UserWarning, match="categories that fit did not see") as caught:
        features.transform(X.map(lambda text: "new\n" + text))
    assert "\n" not in str(caught[0].message)


# What is said, stored and left alone


def test_describe():
    X = pd.DataFrame({
        "age": [40.0, None, 42.5, None, 41.0, 41.0], "height": [1.0, 2, 3, 4, 5, 6], "one": [1] * 6,
        "colour": ["r", "g", "b", "r", "g", "b"], "code": ["1", "2", "3", "1", "2", "3"],
    })  # fmt: skip
    assert Features.fit(X).describe() == [
        "3 numeric columns standardised",
        "1 constant column set to 0: one",
        "code: text read as numbers",
        "age: 2 missing values replaced by the mean 41.125, with an indicator column",
        "colour: 3 categories",
    ]
    lines = Features.fit([[None, *range(500)], [None] * 501, [1.0] * 501]).describe()
    assert lines[-1] == (
        "501 columns have missing values, which are replaced by the mean, with indicator columns: column 0 (2), "
        "column 1 (1), column 2 (1), column 3 (1), column 4 (1) and 496 more"
    )
    few = Features.fit([[None, None, 1, 2], [None, 3, None, None], [None, 4, 5, 6]]).describe()
    assert few[-1].endswith("column 0 (all), column 1 (1), column 2 (1), column 3 (1)")


@pytest.mark.parametrize("X", [numbers(), numbers().tolist(), frame()])
def test_x_can_be_read_once(X):
    table = read(X)
    assert read(table) is table
    features = Features.fit(table)
    assert features == Features.fit(X)
    np.testing.assert_array_equal(features.transform(table), features.transform(X))


def test_the_input_is_untouched():
    X = frame()
    X.loc[2, ["age", "colour"]] = None
    table, array, sparse = X.copy(deep=True), X.to_numpy(dtype=object), scipy.sparse.csr_array(numbers())
    before = array.copy(), sparse.copy()
    rows = numbers().tolist()
    for each in (table, array, sparse, rows):
        Z = encoded(each)
        Z[:] = 7
    pd.testing.assert_frame_equal(table, X)
    np.testing.assert_array_equal(array[~pd.isna(array)], before[0][~pd.isna(array)])
    assert (sparse != before[1]).nnz == 0
    assert rows == numbers().tolist()


def test_features_are_frozen_plain_facts():
    features = Features.fit(frame())
    with pytest.raises(FrozenInstanceError):
        features.rows = 3
    assert copy.deepcopy(features) == features
    assert type(features.columns[0].mean) is float
    assert hash(features) == hash(stored(features))


def test_json_gives_the_same_bits_back():
    X = frame()
    X.loc[2, ["age", "colour"]] = None
    features = Features.fit(X, max_categories=2)
    again = stored(features)
    assert again == features
    assert again.transform(X).tobytes() == features.transform(X).tobytes()
    assert json.dumps(again.to_json(), allow_nan=False) == json.dumps(features.to_json())


GOOD = {
    "rows": 4,
    "names": ["a", "b"],
    "image": None,
    "columns": [
        {"kind": "number", "mean": 1.0, "scale": 2.0, "missing": 1},
        {"kind": "category", "values": ["x", "y"], "rest": ["z"], "missing": 0},
    ],
}


def spoilt():
    """Yield stored features of which one thing is wrong."""
    for bad in (None, [], 3, "x", {}, GOOD | {"more": 1}, {key: GOOD[key] for key in ("rows", "names", "columns")}):
        yield bad
    values = {
        "rows": [0, -1, 2.0, True, None, "4", 2**63],
        "names": [["a"], ["a", "a"], ["a", 1], "ab", [], {"a": 1, "b": 2}],
        "columns": [None, [], {}, [None, None], [{}, {}], GOOD["columns"] * 500_001],
        "image": [[1, 2, 3], [], 3, "x"],
    }
    for key, wrong in values.items():
        for value in wrong:
            yield GOOD | {key: value}
    image = GOOD | {"names": None, "columns": []}
    for value in ([1, 2], [0, 1, 1], [1, 2, 3.0], [True, 1, 1], [10**6, 10**6, 1], [2**40] * 3, None):
        yield image | {"image": value}
    number, category = GOOD["columns"]
    wrong = {
        "mean": [math.nan, math.inf, None, "1", True, 10**400, [1]],
        "scale": [-1.0, math.nan, math.inf, None, 10**400],
        "missing": [-1, 5, 1.0, True, None],
        "kind": ["x", None, 3, [], "category"],
    }
    for key, bad in wrong.items():
        for value in bad:
            yield GOOD | {"columns": [number | {key: value}, category]}
    wrong = {
        "values": [["y", "x"], ["x", "x"], "xy", [1], None, [], ["z"], [["x"]]],
        "rest": [["x"], ["w", "v"], None, "z", [None]],
        "missing": [-1, 5],
        "kind": ["number", "Category"],
        "other": [1],
    }
    for key, bad in wrong.items():
        for value in bad:
            yield GOOD | {"columns": [number, category | {key: value}]}
    yield GOOD | {"columns": [number, category | {"values": [], "rest": []}]}
    yield GOOD | {"columns": [number, category | {"values": [f"{i:07}" for i in range(1_000_001)], "rest": []}]}


def test_good_json_is_read():
    assert Features.from_json(GOOD).encoded_names == ["a", "a missing", "b=x", "b=y", "b other"]
    assert Features.from_json(json.loads(json.dumps(GOOD))).to_json() == GOOD


def test_spoilt_json_is_refused():
    for bad in spoilt():
        with pytest.raises(
            ValueError, match=r"^the stored features are damaged: .*; fit and save them again$"
        ) as caught:
            Features.from_json(bad)
        assert len(str(caught.value)) < 400


def test_extreme_json_still_gives_finite_numbers():
    column = {"kind": "number", "mean": -1.7e308, "scale": 5e-324, "missing": 0}
    features = Features.from_json(GOOD | {"names": None, "columns": [column]})  # half of that scale is 0
    assert features.transform([[1.7e308], [-1.7e308]]).tolist() == [[0], [0]]


CELL = st.none() | st.booleans() | st.integers() | st.floats(allow_infinity=False) | st.text(max_size=4)


@pytest.mark.filterwarnings("ignore:X has .* (so far from the others|is read as categories)")
@given(st.integers(1, 3).flatmap(lambda d: st.lists(st.lists(CELL, min_size=d, max_size=d), min_size=1, max_size=8)))
def test_any_values_encode_to_finite_numbers(rows):
    X = np.array([[*row, None] for row in rows], dtype=object)[:, :-1]
    try:
        features = Features.fit(X)
    except ValueError as error:
        assert "inf" in str(error) or "so far from the others" in str(error)  # noqa: PT017
        return
    Z = features.transform(X)
    assert Z.shape == (len(rows), features.width) == (len(rows), len(features.encoded_names))
    assert np.isfinite(Z).all()
    assert stored(features).transform(X).tobytes() == Z.tobytes()
    alone = [features.transform(X[[i]]) for i in range(len(X))]
    np.testing.assert_array_equal(np.concatenate(alone), Z)


@pytest.mark.parametrize("make", [lambda texts: [[text] for text in texts], lambda texts: pd.DataFrame({"a": texts})])
@pytest.mark.parametrize("texts", [["1,5", "2,25", "3"], ["1,234", "2,345"], ["1.234,5", "2"], ["1 234", "1'234"]])
def test_numbers_with_commas_are_refused(make, texts):
    X = make(texts)
    raises(f"X has {texts[0]!r} in row 0, column", lambda: Features.fit(X))
    raises("write a point before decimals and no other separators, as in 1234.5", lambda: Features.fit(X))
    plain = Features.fit(make(["1", "2", "3"]))
    raises(f"X has {texts[0]!r} in row 0, column", lambda: plain.transform(X))


def test_categories_with_commas_are_kept():
    assert Features.fit(pd.DataFrame({"a": pd.Categorical(["1,5", "2"])})).encoded_names == ["a=1,5", "a=2"]
    assert Features.fit([["1,2,3"], ["4"]]).encoded_names == ["x0=1,2,3", "x0=4"]
    assert Features.fit([["1,5"], ["red"]]).encoded_names == ["x0=1,5", "x0=red"]


@pytest.mark.parametrize(
    "texts", [["NA", "1", "2"], ["5%", "6%"], ["$5", "6"], [*map(str, range(20)), "l2"]], ids=lambda texts: texts[-1]
)
def test_columns_that_are_almost_numbers_warn(texts):
    with pytest.warns(
        UserWarning, match=r"column 0, which is read as categories; most of its values look like numbers"
    ):
        Features.fit([[text] for text in texts * 2])


@pytest.mark.parametrize(
    "times",
    [
        np.array(["400000"], "M8[Y]"),
        np.array([2**60], "M8[s]"),
        np.array([2**62], "m8[D]"),
        pd.Series(np.array([2**55], "M8[s]")),
        pd.Series(np.array([2**55], "m8[s]")),
        pa.array([2**55], pa.timestamp("s")),
        pa.array([2**31 - 1], pa.date32()),
        pa.array([2**60], pa.duration("s")),
    ],
    ids=lambda times: str(getattr(times, "dtype", None) or times.type),
)
def test_times_that_overflow_are_refused(times):
    X = times[:, None] if isinstance(times, np.ndarray) else pa.table({"a": times})
    if isinstance(times, pd.Series):
        X = pd.DataFrame({"a": times})
    raises("that is more than 290,000 years away; correct it or drop the column", lambda: Features.fit(X))


def test_durations_need_a_unit():
    raises("X has durations without a unit in column 0", lambda: Features.fit(np.array([[1], [2]], "m8")))


def test_masks_of_rows_and_of_single_values():
    rows = [np.ma.array([1.0, 2.0], mask=[False, True]), np.ma.array([3.0, 4.0])]
    assert Features.fit(rows).columns[1].missing == 1
    assert Features.fit(np.array([[1.0, np.ma.masked], [2.0, 3.0]], dtype=object)).columns[1].missing == 1
    dates = np.ma.array(np.array([["2020-01-01"], ["2021-01-01"]], "M8[ns]"), mask=[[True], [False]])
    assert Features.fit(dates).columns[0] == Features.fit(np.array([["NaT"], ["2021-01-01"]], "M8[ns]")).columns[0]
    images = np.ma.array(np.zeros((2, 1, 2, 2), np.uint8), mask=np.ones((2, 1, 2, 2), bool))
    raises("X holds masked images", lambda: Features.fit(images))


@pytest.mark.parametrize(
    ("X", "message"),
    [
        ("text", "X is a str; pass an array, a list of rows or a data frame"),
        (iter([[1.0]]), "X is a list_iterator"),
        ({1, 2}, "X is a set"),
        ([{"a": 1}], "X is a list of mappings; pass a data frame"),
        (np.array([[1, 2], [3]], dtype=object), "X is an array of rows, not a matrix"),
        (np.ma.zeros(3, dtype=[("a", float)]), "X has dtype [('a', '<f8')]; pass numbers or text"),
        (torch.zeros(2, 2, device="meta"), "X is a tensor without plain numbers"),
        ([[Decimal("snan")], [Decimal(1)]], "column 0 has a value that is not a number"),
    ],
)
def test_what_is_not_a_table(X, message):
    raises(message, lambda: Features.fit(X))


@pytest.mark.parametrize(
    "column",
    [
        pa.array([[1], [2]]),
        pa.array([{"a": 1}, {"a": 2}]),
        pa.array([1, 2], pa.time32("s")),
        pa.UnionArray.from_sparse(pa.array([0, 1], pa.int8()), [pa.array([1, 2]), pa.array(["a", "b"])]),
    ],
    ids=lambda column: str(column.type),
)
def test_columns_of_other_types_are_named(column):
    X = pa.table({"a": column})
    raises("in column 'a'; an argument must be a string or a number", lambda: Features.fit(X), TypeError)


def test_layouts_of_arrow_make_no_difference():
    plain = Features.fit(pa.table({"a": ["x", None, "y"]}))
    for values in (
        pa.array(["x", None, "y"], pa.string_view()),
        pa.DictionaryArray.from_arrays(pa.array([0, 1, 2]), pa.array(["x", None, "y"])),
        pa.RunEndEncodedArray.from_arrays([1, 2, 3], pa.array(["x", None, "y"])),
        pa.array(["x", None, "y"], pa.dictionary(pa.uint32(), pa.string())),
    ):
        assert Features.fit(pa.table({"a": values})) == plain


def test_integers_of_128_bits():
    polars = pytest.importorskip("polars")
    X = polars.DataFrame({"a": polars.Series([2**100, 5, None], dtype=polars.Int128)})
    assert encoded(X).tolist() == [[1, 0], [-1, 0], [0, 1]]
    X = polars.DataFrame({"a": polars.Series([[1], [2]], dtype=polars.Array(polars.Int64, 1))})
    raises("X has type Array", lambda: Features.fit(X), TypeError)


@pytest.mark.parametrize("labels", [[5, 6, 7], [0.5, 1.5, 2.5], [("a", "x"), ("a", "y"), ("b", "x")], [1, 0, 2]])
def test_columns_are_taken_by_labels_that_are_not_text(labels):
    if isinstance(labels[0], tuple):
        labels = pd.MultiIndex.from_tuples(labels)
    X = pd.DataFrame(np.arange(12.0).reshape(4, 3) ** 2, columns=labels)
    features = Features.fit(X)
    assert features.names_ is None
    assert Features.from_json(features.to_json()) == features
    np.testing.assert_array_equal(features.transform(X.iloc[:, ::-1]), features.transform(X))
    raises("X lacks the columns", lambda: features.transform(X.set_axis([7, 8, 9], axis=1)))
    with pytest.warns(UserWarning, match="X has no column labels, but PartialLabelClassifier was fitted with"):
        features.transform(X.to_numpy())


def test_columns_that_are_numbered_are_taken_by_number():
    X = pd.DataFrame(np.arange(12.0).reshape(4, 3) ** 2)
    for fitted in (Features.fit(X), Features.fit(X.to_numpy())):
        assert fitted.labels is None
        np.testing.assert_array_equal(fitted.transform(X[[2, 0, 1]]), fitted.transform(X))
        with pytest.warns(UserWarning, match="X has column labels such as 5, but .* columns are taken in their order"):
            fitted.transform(X.set_axis([5, 6, 7], axis=1))


def test_other_columns_can_be_dropped():
    features = Features.fit(pd.DataFrame({"a": [1, 2]}))
    X = pd.DataFrame({"a": [1], "b": [1]})
    raises("leave others out (in a terminal, with --drop)", lambda: features.transform(X))
