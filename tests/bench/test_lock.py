"""Locks: those of this system, those of Windows as far as they can be imitated, and none."""

import os
import threading
import types

import pytest

from candidly.bench import lock
from candidly.bench.lock import locked


@pytest.fixture
def windows(monkeypatch):
    """Imitate Windows' module for locks: a file is locked by one handle, and others are refused."""
    holders = {}

    def locking(handle, mode, size):
        assert size == 1
        file = os.fstat(handle).st_ino
        if mode == "unlock":
            assert holders.pop(file) == handle
        elif file in holders:
            raise PermissionError(13, "Permission denied")
        else:
            holders[file] = handle

    fake = types.SimpleNamespace(locking=locking, LK_NBLCK="try", LK_UNLCK="unlock")
    monkeypatch.setattr(lock, "_fcntl", None)
    monkeypatch.setattr(lock, "_msvcrt", fake)
    monkeypatch.setattr(lock, "_PAUSE", 0.001)
    return holders


@pytest.mark.parametrize("system", ["own", "windows"])
def test_one_holds_the_lock_and_others_are_refused(tmp_path, system, request):
    if system == "windows":
        request.getfixturevalue("windows")
    for _ in range(2):
        with locked(tmp_path, wait=False) as first, locked(tmp_path, wait=False) as second:
            assert (first, second) == (True, False)
        assert not list(tmp_path.iterdir())


def test_who_waits_gets_the_lock_in_the_end(tmp_path, windows):
    order = []

    def wait():
        with locked(tmp_path, wait=True) as mine:
            order.append(mine)

    with locked(tmp_path, wait=False):
        thread = threading.Thread(target=wait)
        thread.start()
        thread.join(0.05)
        assert order == []
    thread.join(10)
    assert order == [True]
    assert windows == {}


def test_a_system_without_locks_is_warned_about(tmp_path, monkeypatch):
    monkeypatch.setattr(lock, "_fcntl", None)
    monkeypatch.setattr(lock, "_msvcrt", None)
    with pytest.warns(UserWarning, match="do not let two sweeps use one folder") as seen:  # noqa: SIM117
        with locked(tmp_path, wait=False) as mine:
            assert mine
    assert len(seen) == 1
    assert not list(tmp_path.iterdir())
