"""JSON files: bounds, refusals and digests."""

import hashlib
import json
import os

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from candidly import store
from candidly.store import files, lock, states
from tests.store.cases import OLD, assert_holds, listing


@pytest.mark.parametrize("content", [b"[" * 10**6, b'{"a":' * 10**5, b"9" * 10**5])
def test_json_without_end(content, tmp_path):
    states.write(tmp_path, *OLD)
    (tmp_path / "state.json").write_bytes(content)
    with pytest.raises(ValueError, match="is not a JSON file"):
        states.read(tmp_path)


def test_too_much_json(tmp_path, monkeypatch):
    """Neither read nor written."""
    states.write(tmp_path, *OLD)
    for module in (files, states):
        monkeypatch.setattr(module, "MOST_JSON", 400)
    assert_holds(tmp_path, OLD)
    before = listing(tmp_path)
    for write in (states.write, states.write_folder):
        with pytest.raises(
            ValueError, match=r"facts are \d+ bytes of JSON, more than the limit of 400; save long lists as tensors"
        ):
            write(tmp_path, OLD[0], {"classes": list(range(100))}, stem="state")
    assert listing(tmp_path) == before
    (tmp_path / "state.json").write_bytes(b" " * 401)
    with pytest.raises(ValueError, match="has 401 bytes, more than the limit of 400"):
        states.read(tmp_path)


def test_temporary_files_of_killed_writers_are_removed(tmp_path):
    """Only those of the same file, and none that a writer still has open."""
    kept = [tmp_path / "notes-0123456789abcde.tmp", tmp_path / "other-0123456789abcdef.tmp", tmp_path / "notes.tmp"]
    dead = tmp_path / "notes-0123456789abcdef.tmp"
    for path in (*kept, dead):
        path.write_bytes(b"half")
    with store.replacing(tmp_path / "notes.txt") as file:
        file.write(b"slow")
        store.replace(tmp_path / "notes.txt", b"fast")
        assert not dead.exists()
        assert (tmp_path / "notes.txt").read_bytes() == b"fast"
    assert (tmp_path / "notes.txt").read_bytes() == b"slow"
    assert sorted(tmp_path.iterdir()) == sorted([*kept, tmp_path / "notes.txt"])


def test_a_temporary_file_that_is_taken_for_abandoned_is_made_again(tmp_path, monkeypatch):
    """Another writer removes it after it is created and before it is locked."""
    real, removed = lock.claim, []

    def claim(handle, wait):
        if wait and not removed:
            removed.extend(tmp_path.glob("*.tmp"))
            removed[0].unlink()
        return real(handle, wait)

    monkeypatch.setattr(lock, "claim", claim)
    store.replace(tmp_path / "notes.txt", b"new")
    assert len(removed) == 1
    assert (tmp_path / "notes.txt").read_bytes() == b"new"
    assert len(list(tmp_path.iterdir())) == 1


leaves = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text()

values = st.recursive(leaves, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3))


@settings(max_examples=40, deadline=None)
@given(st.dictionaries(st.text(), values, max_size=4))
def test_digest_survives_json_and_key_order(config):
    digits = store.digest(config)
    assert len(digits) == 16
    assert set(digits) <= set("0123456789abcdef")
    assert store.digest(dict(reversed(config.items()))) == digits
    assert store.digest(json.loads(json.dumps(config))) == digits
    assert store.digest({**config, "one key more": config}) != digits


def test_digest_is_fixed_for_good():
    """A changed digest would orphan every finished run."""
    config = {"method": "proden", "rates": (0.1, 1.0), "cleaner": None, "name": "α"}
    text = '{"cleaner":null,"method":"proden","name":"\\u03b1","rates":[0.1,1.0]}'
    assert store.digest(config) == hashlib.sha256(text.encode()).hexdigest()[:16]


@pytest.mark.parametrize("value", [float("nan"), float("-inf"), {1}, object(), {1: 2}, [{None: 1}], 1j])
def test_digest_refuses_what_json_cannot_hold(value):
    with pytest.raises(ValueError, match="JSON"):
        store.digest({"value": value})


def test_a_pipe_is_not_replaced(tmp_path):
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    with pytest.raises(OSError, match="pipe is not a regular file; name another file"):
        files.replace(pipe, b"new")
    assert pipe.is_fifo()


def test_missing_files_and_folders_are_named(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"the folder .*none does not exist; make it first"):
        files.replace(tmp_path / "none" / "note.txt", b"new")
    with pytest.raises(FileNotFoundError, match=r"none.txt does not exist; check the path"):
        files.read_text(tmp_path / "none.txt")
