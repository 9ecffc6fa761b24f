import io

import pytest

from candidly.checks import limits


def test_the_limit_grows_with_the_file_but_not_beyond_the_machine(monkeypatch):
    monkeypatch.delenv("CANDIDLY_MAX_BYTES", raising=False)
    monkeypatch.setattr(limits, "available_memory", lambda: 2**35)
    assert [limits.max_bytes(size) for size in (0, 2**20, 2**25, 2**40)] == [2**30, 2**30, 100 * 2**25, 2**35]


def test_the_environment_replaces_the_limit(monkeypatch):
    monkeypatch.setenv("CANDIDLY_MAX_BYTES", "1000")
    limits.check_bytes("a.npz", 1000, 10**9)
    with pytest.raises(ValueError, match=r"^a.npz takes at least 1001 bytes of memory, more than the limit"):
        limits.check_bytes("a.npz", 1001, 10**9)
    monkeypatch.setenv("CANDIDLY_MAX_BYTES", f"{2**60}")
    limits.check_bytes("a.npz", 2**50, 1)


@pytest.mark.parametrize("given", ["8 GiB", "-1", "1e9", "0x10", "²"])
def test_a_limit_that_is_not_a_number_is_an_error(monkeypatch, given):
    monkeypatch.setenv("CANDIDLY_MAX_BYTES", given)
    with pytest.raises(ValueError, match=r"environment variable CANDIDLY_MAX_BYTES is .*; set it to a number of bytes"):
        limits.max_bytes(1)


def test_a_stream_ends_at_the_limit(monkeypatch):
    monkeypatch.setenv("CANDIDLY_MAX_BYTES", "100")
    assert io.BufferedReader(limits.Bounded(io.BytesIO(bytes(100)), "a", 1)).read() == bytes(100)
    with pytest.raises(ValueError, match="a takes at least 101 bytes"):
        io.BufferedReader(limits.Bounded(io.BytesIO(bytes(101)), "a", 1)).read()
    with pytest.raises(ValueError, match="a takes at least 102 bytes"):
        io.BufferedReader(limits.Bounded(io.BytesIO(bytes(51)), "a", 1, lambda part: 2 * len(part))).read()


@pytest.mark.parametrize(("available", "limit"), [(None, 2**30), (-5, 0), (1000, 1000)])
def test_the_available_memory_may_be_unknown_or_exhausted(monkeypatch, available, limit):
    monkeypatch.delenv("CANDIDLY_MAX_BYTES", raising=False)
    monkeypatch.setattr(limits, "available_memory", lambda: available)
    assert limits.max_bytes(1) == limit
