"""What a machine has and when it fails: available memory, and errors that are the machine's fault, not a method's."""

import errno
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

# Texts in errors of torch, CUDA and the operating system that other types than `MemoryError` have.
_NO_MEMORY = (
    "DefaultCPUAllocator",
    "CUDA out of memory",
    "CUDA error: out of memory",
    "STATUS_ALLOC_FAILED",
    "Cannot allocate memory",
)
_NO_DEVICE = (
    "busy or unavailable",
    "no CUDA-capable device",
    "CUDA error: initialization error",
    "CUDA error: unknown error",
    "CUDA error: unspecified launch failure",
    "CUDA error: the launch timed out",
    "CUDA error: uncorrectable ECC error",
    "CUDA error: hardware",
    "CUDA error: device",  # lost, not ready, or not licensed; a failed assertion says "device-side"
    "CUDA error: system",
    "CUDA driver",
    "STATUS_NOT_INITIALIZED",
)
_NO_SPACE = ("No space left", "Disk quota exceeded")
_NO_LIBRARY = ("failed to map segment",)
_NO_THREAD = ("can't start new thread", "Resource temporarily unavailable")
_MEMORY_ADVICE = "use fewer members, folds, seeds or jobs, a smaller batch size, or another device"


class Shortage(MemoryError, ValueError):
    """What was asked for needs more memory than the machine has available; raised before the memory is used."""


class Need(NamedTuple):
    """Memory that a computation needs at least, in bytes, and how to reduce it."""

    size: int
    advice: str


def require(needs: Mapping[str, Need], available: int | None, where: str) -> None:
    """Raise `Shortage` if the needs, which are lower bounds, exceed the available memory; None means unknown.

    Examples
    --------
    >>> try:
    ...     require({"networks": Need(2**40, "use fewer members")}, 2**34, "cpu")
    ... except Shortage as error:
    ...     print(str(error).partition("but")[2])
     16.0 GiB are available; use fewer members
    """
    total = sum(need.size for need in needs.values())
    if available is None or total <= available:
        return
    name, largest = max(needs.items(), key=lambda item: item[1].size)
    wanted = f"at least {in_bytes(total)} of memory are needed on {where}"
    if len(needs) > 1:
        wanted += f", {in_bytes(largest.size)} of it"
    found = in_bytes(max(available, 0))
    raise Shortage(f"{wanted} for {name}, but {found} are available; {largest.advice}")


def in_bytes(size: int) -> str:
    """Return a number of bytes with a unit.

    Examples
    --------
    >>> in_bytes(1536), in_bytes(10**12)
    ('1.5 KiB', '931.3 GiB')
    """
    units = ("bytes", "KiB", "MiB", "GiB", "TiB", "PiB")
    power = min(max(size.bit_length() - 1, 0) // 10, len(units) - 1)
    scaled = size / 1024**power if size.bit_length() < 1000 else float("inf")
    return f"{scaled:.1f} {units[power]}" if power else f"{size} bytes"


def available_memory() -> int | None:
    """Return how many bytes this process can still allocate, swap space included; None where it cannot be found out.

    It is the smallest of what the system, the process's control group (a container) and its limit on addresses allow.
    """
    found = [limit for limit in (_of_system(), _of_group(), _of_addresses()) if limit is not None]
    return min(found, default=None)


def _of_system() -> int | None:
    try:
        lines = Path("/proc/meminfo").read_text(encoding="ascii").splitlines()
        sizes = {name: int(rest.split()[0]) * 1024 for name, _, rest in (line.partition(":") for line in lines)}
        return sizes["MemAvailable"] + sizes["SwapFree"]
    except (OSError, ValueError, KeyError, IndexError):
        pass
    try:  # without /proc: all memory
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, OSError, ValueError):
        return None


def _of_group() -> int | None:
    """Return what is left within the limits of the process's control group and of the groups around it."""
    root = Path("/sys/fs/cgroup")
    try:
        lines = Path("/proc/self/cgroup").read_text(encoding="utf-8").splitlines()
    except OSError:
        return None
    found = []
    for controllers, path in (line.split(":", 2)[1:] for line in lines):
        second = not controllers  # the second version has one hierarchy, for everything
        if not second and "memory" not in controllers.split(","):
            continue
        top = root if second else root / "memory"
        folder = top / path.lstrip("/")
        files = ("memory.max", "memory.current", "inactive_file")
        if not second:
            files = ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file")
        groups = [folder, *(parent for parent in folder.parents if parent.is_relative_to(top))]
        found += [left for left in (_left_in(group, *files) for group in groups) if left is not None]
    return min(found, default=None)


def _left_in(group: Path, limit: str, usage: str, cache: str) -> int | None:
    """Return what a control group may still use; file caches do not count as used. None if there is no limit."""
    try:
        most, used = (int((group / name).read_text(encoding="ascii")) for name in (limit, usage))  # or "max"
        lines = (group / "memory.stat").read_text(encoding="ascii").splitlines()
        return most - used + next(int(line.split()[1]) for line in lines if line.startswith(f"{cache} "))
    except (OSError, ValueError, IndexError, StopIteration):
        return None


def _of_addresses() -> int | None:
    """Return what is left within the process's limit on addresses, as ``ulimit -v`` sets it."""
    try:
        import resource

        most = resource.getrlimit(resource.RLIMIT_AS)[0]
        if most == resource.RLIM_INFINITY:
            return None
        pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[0])
        return most - pages * os.sysconf("SC_PAGE_SIZE")
    except (ImportError, OSError, ValueError, IndexError):
        return None


def fault(error: BaseException) -> str | None:
    """Return what to do about an error that is the machine's fault, in one line; None for other errors.

    These are shortages of memory, disk space and threads, and CUDA devices that are lost, busy or broken. The same
    work may succeed on another machine or at another time.

    Examples
    --------
    >>> fault(OSError(28, "No space left on device"))
    'no space left where output is written ([Errno 28] No space left on device); free some, or choose another folder'
    >>> fault(ValueError("alpha is 2")) is None
    True
    """
    if isinstance(error, Shortage):
        return str(error)
    text = " ".join(str(error).split())
    detail = f" ({text[:200]})" if text else ""
    number = error.errno if isinstance(error, OSError) else None
    if isinstance(error, MemoryError) or number == errno.ENOMEM or _is_torch_shortage(error):
        return f"not enough memory{detail}; {_MEMORY_ADVICE}"
    if number in (errno.ENOSPC, errno.EDQUOT) or _says(error, _NO_SPACE):
        return f"no space left where output is written{detail}; free some, or choose another folder"
    if isinstance(error, ImportError) and _says(error, _NO_LIBRARY):
        return f"not enough memory to load a library{detail}; close other programs, or raise the limit on memory"
    if not isinstance(error, RuntimeError | OSError):
        return None
    if _says(error, _NO_MEMORY):
        return f"not enough memory{detail}; {_MEMORY_ADVICE}"
    if _says(error, _NO_THREAD):
        return f"no more threads or processes can be started{detail}; use fewer jobs, or close other programs"
    if _says(error, _NO_DEVICE):
        return f"the device failed{detail}; try again, or use another device"
    return None


def _is_torch_shortage(error: BaseException) -> bool:
    torch = sys.modules.get("torch")  # which this module does not import: the error is torch's only if it is loaded
    return torch is not None and isinstance(error, torch.OutOfMemoryError)


def _says(error: BaseException, texts: tuple[str, ...]) -> bool:
    return any(text in str(error) for text in texts) and "device-side assert" not in str(error)
