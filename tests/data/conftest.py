import os
import warnings
from pathlib import Path

import pytest

from candidly.data import LicenceNotice, load


@pytest.fixture
def places(tmp_path, monkeypatch):
    """The three folders that are searched, all below tmp_path."""
    monkeypatch.setenv("CANDIDLY_DATA", str(tmp_path / "variable"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "root", tmp_path / "variable", tmp_path / "cache" / "candidly"


@pytest.fixture
def real_files(monkeypatch):
    """Let `load` find published files: in `$CANDIDLY_DATA`, or else in a folder `shared/data` beside the repository."""
    beside = Path(__file__).parents[3] / "shared" / "data"
    if not os.environ.get("CANDIDLY_DATA") and beside.is_dir():
        monkeypatch.setenv("CANDIDLY_DATA", str(beside))

    def load_real(name):
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", LicenceNotice)
                return load(name)
        except FileNotFoundError:
            pytest.skip(f"{name} is not there; name its folder in CANDIDLY_DATA to run this test")

    return load_real
