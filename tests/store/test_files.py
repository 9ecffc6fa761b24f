"""JSON files: bounds, refusals and digests."""

import hashlib
import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from candidly import store
from candidly.store import files, states
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
        monkeypatch.setattr(module, "MOST_JSON", 200)
    assert_holds(tmp_path, OLD)
    before = listing(tmp_path)
    for write in (states.write, states.write_folder):
        with pytest.raises(
            ValueError, match=r"facts are \d+ bytes of JSON, more than the limit of 200; save long lists as tensors"
        ):
            write(tmp_path, OLD[0], {"classes": list(range(100))}, stem="state")
    assert listing(tmp_path) == before
    (tmp_path / "state.json").write_bytes(b" " * 201)
    with pytest.raises(ValueError, match="has 201 bytes, more than the limit of 200"):
        states.read(tmp_path)


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
