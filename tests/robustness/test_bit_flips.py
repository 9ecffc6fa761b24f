"""A flipped bit in a saved file is noticed, or changes nothing."""

import pytest

from tests.robustness import bit_flips


@pytest.mark.parametrize("kind", bit_flips.MAKERS)
def test_flipped_bits_are_noticed(kind, tmp_path):
    for target in bit_flips.MAKERS[kind](tmp_path / "files"):
        found = bit_flips.play(target, 150)
        assert found["unnoticed"] == [], target.name
        assert found["unclear"] == [], target.name
        assert found["noticed"] + found["same"] == found["flips"] > 90
        assert found["noticed"] > 30
