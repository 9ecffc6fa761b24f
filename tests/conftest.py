"""Settings of the whole suite: one thread, so that bits repeat, the same examples in every run, and markers."""

import os
import warnings
from pathlib import Path

import pytest
import torch
from hypothesis import settings

torch.set_num_threads(1)
settings.register_profile("suite", deadline=None, derandomize=True)
settings.load_profile("suite")


def pytest_collection_modifyitems(items):
    """Mark what needs published files, and skip what needs a GPU where there is none."""
    for item in items:
        if "real_files" in item.fixturenames:
            item.add_marker(pytest.mark.data)
        if item.get_closest_marker("gpu") and not torch.cuda.is_available():
            item.add_marker(pytest.mark.skip(reason="needs a CUDA device"))


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
