"""Locks: those of this system, those of Windows as far as they can be imitated, and none."""

import errno
import os
import threading
import types

import pytest

from candidly.store import lock
from candidly.store.lock import claim, locked


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
        with locked(tmp_path / "lock", wait=False) as first, locked(tmp_path / "lock", wait=False) as second:
            assert (first, second) == (True, False)
        assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("system", ["own", "windows"])
def test_who_waits_gets_the_lock_in_the_end(tmp_path, system, request):
    holders = request.getfixturevalue("windows") if system == "windows" else {}
    order = []

    def wait():
        with locked(tmp_path / "lock", wait=True) as mine:
            order.append(mine)

    with locked(tmp_path / "lock", wait=False):
        thread = threading.Thread(target=wait)
        thread.start()
        thread.join(0.05)
        assert order == []
    thread.join(10)
    assert order == [True]
    assert holders == {}
    assert not list(tmp_path.iterdir())


def test_a_waiter_does_not_hold_a_file_that_was_removed(tmp_path):
    """Three threads take turns: each opens the file that the one before removes."""
    inside, most, counts = [], [], [0]

    def work():
        for _ in range(200):
            with locked(tmp_path / "lock", wait=True) as mine:
                inside.append(mine)
                most.append(len(inside))
                counts[0] += 1
                inside.pop()

    threads = [threading.Thread(target=work) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert counts == [600]
    assert set(most) == {1}
    assert not list(tmp_path.iterdir())


def test_an_error_releases_the_lock_and_a_killed_holders_file_is_no_lock(tmp_path):
    path = tmp_path / "new" / "lock"
    with pytest.raises(ZeroDivisionError), locked(path, wait=False):
        raise ZeroDivisionError
    assert not path.exists()
    path.touch()
    with locked(path, wait=False) as mine:
        assert mine
    assert not path.exists()


def test_an_open_file_is_claimed_until_it_is_closed(tmp_path):
    path = tmp_path / "file"
    path.touch()
    first, second = (os.open(path, os.O_RDWR) for _ in range(2))
    assert claim(first, wait=True)
    assert not claim(second, wait=False)
    os.close(first)
    assert claim(second, wait=False)
    os.close(second)


def without_modules(monkeypatch):
    monkeypatch.setattr(lock, "_fcntl", None)
    monkeypatch.setattr(lock, "_msvcrt", None)


def without_support(monkeypatch):
    def flock(handle, mode):
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(lock, "_fcntl", types.SimpleNamespace(flock=flock, LOCK_EX=2, LOCK_NB=4))


@pytest.mark.parametrize("missing", [without_modules, without_support])
def test_a_system_without_locks_is_warned_about(tmp_path, monkeypatch, missing):
    missing(monkeypatch)
    with pytest.warns(UserWarning, match="do not let two processes write to one folder") as seen:  # noqa: SIM117
        with locked(tmp_path / "lock", wait=False) as mine:
            assert mine
    assert len(seen) == 1
    assert not list(tmp_path.iterdir())
    with open(tmp_path / "file", "xb") as file:
        assert not claim(file.fileno(), wait=False)


def test_other_errors_of_the_system_are_raised(tmp_path, monkeypatch):
    def flock(handle, mode):
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(lock, "_fcntl", types.SimpleNamespace(flock=flock, LOCK_EX=2, LOCK_NB=4))
    with pytest.raises(OSError, match="Input/output error"), locked(tmp_path / "lock", wait=False):
        pass
