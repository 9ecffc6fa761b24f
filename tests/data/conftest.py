import pytest


@pytest.fixture
def places(tmp_path, monkeypatch):
    """The three folders that are searched, all below tmp_path."""
    monkeypatch.setenv("CANDIDLY_DATA", str(tmp_path / "variable"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "root", tmp_path / "variable", tmp_path / "cache" / "candidly"
