"""Indices of sparse matrices are checked before scipy uses them."""

import numpy as np
import pytest
import scipy.sparse

from candidly.candidates import encode
from candidly.checks.sparse import check_sparse
from candidly.tables.features import Features

DENSE = np.array([[1.0, 0, 2, 0], [0, 3, 0, 0]])


@pytest.mark.parametrize("kind", ["csr", "csc", "coo", "bsr", "lil", "dok", "dia"])
def test_good_ones_are_the_same(kind):
    np.testing.assert_array_equal(check_sparse(scipy.sparse.csr_array(DENSE).asformat(kind)).toarray(), DENSE)


@pytest.mark.parametrize("wrong", [-1, 99, 2**31 - 1])
@pytest.mark.parametrize(
    ("kind", "part"), [("csr", "indices"), ("csc", "indices"), ("bsr", "indices"), ("coo", "row"), ("csr", "indptr")]
)
def test_damaged_ones_are_refused(kind, part, wrong):
    matrix = scipy.sparse.csr_matrix(DENSE).asformat(kind)
    getattr(matrix, part)[-1] = wrong
    with pytest.raises(ValueError, match="a sparse matrix"):
        check_sparse(matrix)


def test_both_readers_check():
    matrix = scipy.sparse.csr_matrix(DENSE > 0)
    matrix.indices[0] = 99
    with pytest.raises(ValueError, match="y is a sparse matrix with indices out of range; build it again"):
        encode(matrix)
    with pytest.raises(ValueError, match="X is a sparse matrix with indices out of range; build it again"):
        Features.fit(matrix)
