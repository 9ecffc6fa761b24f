"""Faults of the machine, and the memory that it has."""

import errno
import subprocess
import sys

import numpy as np
import pyarrow as pa
import pytest
import torch

from candidly.checks import machine
from candidly.checks.machine import Need, Shortage


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (MemoryError(), "not enough memory; use fewer"),
        (pa.ArrowMemoryError("malloc of size 7 failed"), "not enough memory (malloc of size 7 failed); use fewer"),
        (
            torch.OutOfMemoryError("CUDA out of memory.\nTried to"),
            "not enough memory (CUDA out of memory. Tried to); use",
        ),
        (RuntimeError("CUDA error: out of memory"), "not enough memory"),
        (RuntimeError("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling"), "not enough memory"),
        (RuntimeError("DefaultCPUAllocator: not enough memory: you tried"), "not enough memory"),
        (OSError(errno.ENOMEM, "Cannot allocate memory"), "not enough memory"),
        (OSError(errno.ENOSPC, "No space left on device"), "no space left where output is written"),
        (OSError(errno.EDQUOT, "Disk quota exceeded"), "no space left where output is written"),
        (RuntimeError("I/O error: No space left on device (os error 28)"), "no space left where output is written"),
        (RuntimeError("can't start new thread"), "no more threads or processes"),
        (RuntimeError("CUDA error: all CUDA-capable devices are busy or unavailable"), "the device failed"),
        (RuntimeError("CUDA error: unspecified launch failure"), "the device failed"),
        (RuntimeError("No CUDA GPUs are available; CUDA driver initialization failed"), "the device failed"),
    ],
)
def test_faults_of_the_machine_say_what_to_do(error, words):
    found = machine.fault(error)
    assert found.startswith(words)
    assert "\n" not in found
    assert "; " in found


def test_what_libraries_raise_is_recognised():
    for allocate in (lambda: np.ones(10**17), lambda: torch.ones(10**15), lambda: bytearray(10**18)):
        with pytest.raises((MemoryError, RuntimeError)) as caught:
            allocate()
        assert machine.fault(caught.value).startswith("not enough memory")


@pytest.mark.parametrize(
    "error",
    [
        ValueError("alpha is 2"),
        RuntimeError("mat1 and mat2 shapes cannot be multiplied"),
        RuntimeError("CUDA error: device-side assert triggered"),
        RuntimeError("CUDA error: an illegal memory access was encountered"),
        FileNotFoundError(errno.ENOENT, "no such file"),
        KeyError("memory"),
    ],
)
def test_other_errors_are_none(error):
    assert machine.fault(error) is None


def test_needs_above_the_available_memory_are_refused():
    needs = {"networks": Need(6 * 2**30, "use fewer members"), "state": Need(2**30, "use fewer rows")}
    machine.require(needs, 7 * 2**30, "cpu")
    machine.require(needs, None, "cpu")
    with pytest.raises(Shortage) as caught:
        machine.require(needs, 7 * 2**30 - 1, "cpu")
    words = "at least 7.0 GiB of memory are needed on cpu, 6.0 GiB of it for networks, but 7.0 GiB are available; "
    assert str(caught.value) == f"{words}use fewer members"
    assert isinstance(caught.value, MemoryError)
    assert isinstance(caught.value, ValueError)
    assert machine.fault(caught.value) == str(caught.value)


def test_the_available_memory_is_known_here():
    found = machine.available_memory()
    assert found is None or 2**20 < found < 2**60


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")
def test_a_limit_on_addresses_counts():
    limit = 2**32
    code = (
        f"import resource; resource.setrlimit(resource.RLIMIT_AS, ({limit}, {limit}))\n"
        "from candidly.checks import machine; print(machine.available_memory())"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert 0 < int(done.stdout) < limit


def test_groups_with_a_limit_count(tmp_path):
    (tmp_path / "memory.max").write_text("1000\n")
    (tmp_path / "memory.current").write_text("700\n")
    (tmp_path / "memory.stat").write_text("anon 600\ninactive_file 100\n")
    assert machine._left_in(tmp_path, "memory.max", "memory.current", "inactive_file") == 400
    (tmp_path / "memory.max").write_text("max\n")
    assert machine._left_in(tmp_path, "memory.max", "memory.current", "inactive_file") is None


def test_recognising_faults_needs_no_torch():
    code = (
        "import sys; from candidly.checks import machine; machine.fault(MemoryError()); print('torch' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"
