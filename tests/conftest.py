"""Settings of the whole suite: one thread, so that bits repeat, and the same examples in every run."""

import os
import warnings
from pathlib import Path

import pytest
import torch
from hypothesis import settings

torch.set_num_threads(1)
settings.register_profile("suite", deadline=None, derandomize=True)
settings.load_profile("suite")


@pytest.fixture
def real_files(monkeypatch):
    """Let `load` find published files: in `$CANDIDLY_DATA`, or else in a folder `shared/data` beside the repository."""
    beside = Path(__file__).parents[2] / "shared" / "data"
    if not os.environ.get("CANDIDLY_DATA") and beside.is_dir():
        monkeypatch.setenv("CANDIDLY_DATA", str(beside))

    def load_real(name):
        from candidly.data import LicenceNotice, load

        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", LicenceNotice)
                return load(name)
        except FileNotFoundError:
            pytest.skip(f"{name} is not there; name its folder in CANDIDLY_DATA to run this test")

    return load_real
