"""Labels that look right and would be read wrongly, and tensors."""

import numpy as np
import pytest
import torch

from candidly.candidates import encode

S = np.array([[True, False], [True, True]])


@pytest.mark.parametrize(
    "y", [S.astype(int).astype(str), S.astype(str), S.astype(int).astype("S1"), S.astype(float).astype(str)]
)
def test_matrices_of_texts_are_refused(y):
    with pytest.raises(ValueError, match="y is a matrix of the texts"):
        encode(y)


@pytest.mark.parametrize("kind", [torch.bool, torch.bfloat16, torch.float64])
def test_tensors(kind):
    tensor = torch.tensor(S).to(kind)
    assert encode(tensor.requires_grad_(kind.is_floating_point)).matrix.tolist() == S.tolist()


def test_meta_tensors_are_refused():
    with pytest.raises(ValueError, match="y is a tensor without plain numbers"):
        encode(torch.ones(2, 2, device="meta"))


@pytest.mark.parametrize("name", ["a\u200bb", "a\x00b", "a\u00adb"])
def test_names_that_differ_by_invisible_characters(name):
    with pytest.warns(UserWarning, match="invisible characters"):
        encode([["ab"], [name], ["c"]])


def test_null_characters_at_the_end_are_refused():
    with pytest.raises(ValueError, match=r"row 1 holds the name 'a\\x00', which ends in a null character"):
        encode([["b"], ["a\0"]])
