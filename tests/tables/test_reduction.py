"""Wide sparse matrices become the components of a truncated SVD."""

import warnings

import numpy as np
import pandas as pd
import pytest
from scipy import sparse
from sklearn.decomposition import TruncatedSVD

from candidly.tables.columns import read
from candidly.tables.features import Features
from candidly.tables.reduction import Reduction

RNG = np.random.default_rng(0)
X = sparse.random(60, 300, density=0.05, random_state=0, format="csr", data_rvs=lambda n: RNG.exponential(size=n))


def test_components_are_those_of_the_svd():
    topics = RNG.normal(size=(60, 5)) * 2.0 ** np.arange(5) @ RNG.normal(size=(5, 300))
    mixed = X + sparse.csr_array(topics)
    found = Reduction.fit(mixed, 5).transform(read(mixed))
    expected = TruncatedSVD(5, algorithm="arpack").fit_transform(mixed)
    np.testing.assert_allclose(np.abs(found), np.abs(expected), atol=1e-3)


def test_components_have_a_fixed_seed():
    reduction = Reduction.fit(X, 5)
    assert np.array_equal(Reduction.fit(X, 5).components, reduction.components)
    assert Reduction.fit(X, 5) == reduction != Reduction.fit(X, 4)


def test_rank_limits_the_components():
    low = sparse.csr_array(np.outer(RNG.random(60), RNG.random(300)) + np.outer(RNG.random(60), RNG.random(300)))
    assert Reduction.fit(low, 5).components.shape == (300, 2)
    assert Reduction.fit(sparse.csr_array((60, 300)), 5).components.shape == (300, 1)


@pytest.mark.parametrize(
    ("given", "width"), [(X, 20), (X[:, :200], 200), (X.toarray(), 300)], ids=["wide", "narrow", "dense"]
)
def test_only_wide_sparse_matrices_are_reduced(given, width):
    features = Features.fit(given, n_components=20)
    assert features.width == features.transform(given).shape[1] == width
    assert features.n_features_in_ == given.shape[1]
    assert Features.fit(given, n_components=None).width == given.shape[1]


def test_components_are_standardised_and_described():
    features = Features.fit(X, n_components=20)
    encoded = features.transform(X)
    np.testing.assert_allclose(encoded.mean(0), 0, atol=1e-6)
    np.testing.assert_allclose(encoded.std(0), 1, atol=1e-5)
    assert features.describe() == ["300 sparse columns reduced to 20 components (truncated SVD), standardised"]
    assert features.encoded_names[:2] == ["svd0", "svd1"]


def test_a_row_has_the_same_components_in_every_form():
    features = Features.fit(X, n_components=20)
    encoded = features.transform(X)
    for form in (X.tocsc(), X.tocoo(), X.toarray(), X.toarray().tolist(), pd.DataFrame(X.toarray())):
        np.testing.assert_allclose(features.transform(form), encoded, atol=1e-6)
    for rows in ([3], [59, 0, 3]):
        np.testing.assert_array_equal(features.transform(X[rows]), encoded[rows])


def test_repeated_rows_count_twice():
    rows = np.repeat(np.arange(60), RNG.integers(0, 3, 60))
    repeated, plain = Features.fit(X, rows=rows, n_components=20), Features.fit(X[rows], n_components=20)
    np.testing.assert_allclose(np.abs(repeated.transform(X)), np.abs(plain.transform(X)), atol=1e-4)
    assert repeated.rows == plain.rows == len(rows)


def test_missing_values_are_not_reduced():
    gaps = X.copy()
    gaps.data[7] = np.nan
    assert Features.fit(gaps, n_components=20).reduction is None
    features = Features.fit(X, n_components=20)
    filled = X.copy()
    filled.data[7] = 0
    for form in (gaps, gaps.toarray()):
        with pytest.warns(UserWarning, match="X has missing values, and the training data had none"):
            found = features.transform(form)
        np.testing.assert_allclose(found, features.transform(filled), atol=1e-6)


def test_what_cannot_be_reduced_is_named():
    endless = X.copy()
    endless.data[0] = np.inf
    row, column = (int(one[0]) for one in np.nonzero(np.isinf(endless.toarray())))
    with pytest.raises(ValueError, match=f"X has inf in row {row}, column {column}; replace infinite numbers"):
        Features.fit(endless, n_components=20)
    features = Features.fit(X, n_components=20)
    with pytest.raises(ValueError, match=f"X has inf in row {row}, column {column}; replace infinite numbers"):
        features.transform(endless)
    with pytest.raises(ValueError, match="X has 299 features, but PartialLabelClassifier is expecting 300"):
        features.transform(X[:, 1:])
    with pytest.raises(ValueError, match="column 0 of X holds text, but X was a sparse matrix in fit; pass numbers"):
        features.transform([["a"] * 300])
    with pytest.raises(ValueError, match="n_components is 0; it must be"):
        Features.fit(X, n_components=0)


def test_integers_and_booleans_are_reduced():
    counts = (X > 0).astype(int) * 3
    found = Features.fit(counts, n_components=20).transform(counts)
    np.testing.assert_allclose(found, Features.fit(counts.astype(float), n_components=20).transform(counts), atol=1e-6)
    assert Features.fit(X > 0, n_components=20).width == 20


def test_features_are_stored_with_their_components():
    features = Features.fit(X, n_components=20)
    components = features.reduction.components
    assert Features.from_json(features.to_json(), components) == features
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for damaged in (components[:, 1:], components.astype(np.float64), np.full_like(components, np.nan)):
            with pytest.raises(ValueError, match="the stored features are damaged: the"):
                Features.from_json(features.to_json(), damaged)
