from itertools import pairwise

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from candidly.candidates.bags import find_bags


@given(st.lists(st.integers(1, 7), min_size=1, max_size=12))
def test_bags_are_what_a_loop_finds(sets):
    S = np.array([[code >> j & 1 for j in range(3)] for code in sets], dtype=bool)
    expected = [0]
    for before, code in pairwise(sets):
        joined = before == code and code.bit_count() > 1
        expected.append(expected[-1] + (not joined))
    assert find_bags(S).tolist() == expected


def test_rows_of_one_bag_are_consecutive():
    S = np.array([[1, 1, 0], [0, 1, 1], [1, 1, 0]], dtype=bool)
    assert find_bags(S).tolist() == [0, 1, 2]
