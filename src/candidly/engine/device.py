"""Choosing a device, and the CUDA streams and graph captures that trainings in one process share."""

import functools
import os
import re
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext, suppress
from typing import Any, ParamSpec, TypeVar

import torch

from candidly.checks.arguments import shown

_P = ParamSpec("_P")
_R = TypeVar("_R")

_lock = threading.RLock()
_idle: dict[int, list[torch.cuda.Stream]] = {}  # streams without a training, by device
_ours: set[int] = set()  # addresses of all streams of ours, idle or in use
_trainings: list[bool] = []  # for each running training, whether it is deterministic
_before: list[tuple[bool, bool]] = []  # the user's cuDNN settings, while a training runs
_failed: list[torch.cuda.CUDAGraph] = []  # kept alive: the allocator still points to them

if hasattr(os, "register_at_fork"):
    # The threads of OpenMP do not exist in a forked process, which would wait for them for ever.
    os.register_at_fork(after_in_child=lambda: torch.set_num_threads(1))


def find_device(device: str | torch.device) -> torch.device:
    """Return the device for a name; "auto" is CUDA if it is available, otherwise the CPU.

    Examples
    --------
    >>> find_device("gpu")
    Traceback (most recent call last):
        ...
    ValueError: device is 'gpu'; use 'auto', 'cpu', 'cuda', or a number such as 'cuda:0' if there are several
    """
    name = str(device) if isinstance(device, str | torch.device) else ""
    match = re.fullmatch(r"auto|cpu|cuda(?::(\d{1,4}))?", name)
    if match is None:
        advice = "use 'auto', 'cpu', 'cuda', or a number such as 'cuda:0' if there are several"
        raise ValueError(f"device is {shown(device)}; {advice}")
    available = torch.cuda.is_available()
    if name == "cpu" or (name == "auto" and not available):
        return torch.device("cpu")
    if not available:
        raise ValueError(f"device is {name!r}, but there is no CUDA device here; use 'auto' or 'cpu'")
    if match[1] is None:  # another thread may have a different current device
        return torch.device("cuda", torch.cuda.current_device())
    number, count = int(match[1]), torch.cuda.device_count()
    if number >= count:
        raise ValueError(f"device is {name!r}, but CUDA devices are numbered from 0 to {count - 1} here")
    return torch.device("cuda", number)


def find_devices(device: str | torch.device | Sequence[str | torch.device]) -> list[torch.device]:
    """Return the devices for a name, several names separated by commas, or a list of them; one may occur twice.

    Examples
    --------
    >>> find_devices("cpu,cpu")
    [device(type='cpu'), device(type='cpu')]
    """
    named = device.split(",") if isinstance(device, str) else device
    if not isinstance(named, list | tuple):
        return [find_device(device)]  # type: ignore[arg-type]
    if not named:
        raise ValueError("device is an empty list; name at least one device, such as 'auto'")
    if len(named) > 1 and any(str(one).strip() == "auto" for one in named):
        raise ValueError(f"device is {shown(device)}; name each device, such as 'cuda:0,cuda:1', instead of 'auto'")
    return [find_device(one.strip() if isinstance(one, str) else one) for one in named]


def usual_settings(function: Callable[_P, _R]) -> Callable[_P, _R]:
    """Decorate a function such that settings of torch around a call do not change its results.

    Within the call, tensors are on the CPU unless a device is given, gradients can be computed, and autocast is off.
    Only what differs is set, because a default device slows every operation of torch.
    """

    @functools.wraps(function)
    def called(*args: _P.args, **kwargs: _P.kwargs) -> _R:
        with ExitStack() as settings:
            if torch.is_inference_mode_enabled():
                settings.enter_context(torch.inference_mode(False))
            settings.enter_context(torch.enable_grad())
            for kind in ("cpu", "cuda"):
                if torch.is_autocast_enabled(kind):
                    settings.enter_context(torch.autocast(kind, enabled=False))
            if torch.empty(0).device.type != "cpu":
                settings.enter_context(torch.device("cpu"))
            return function(*args, **kwargs)

    return called


@contextmanager
def training_on(device: torch.device, deterministic: bool = False) -> Iterator[None]:
    """Prepare a device for a training; on CUDA, give the training its own stream.

    Graphs cannot be captured on the default stream, and with one stream each, several threads can train at the same
    time. Streams are reused, and with them the memory that torch caches for each.
    """
    if device.type != "cuda":
        yield
        return
    with torch.cuda.device(device), _cudnn(deterministic):
        stream, current = _take(device.index), torch.cuda.current_stream()
        try:
            stream.wait_stream(current)
            try:
                with torch.cuda.stream(stream):
                    yield
            finally:
                current.wait_stream(stream)
        finally:
            with _lock:
                _idle[device.index].append(stream)


def _take(index: int) -> torch.cuda.Stream:
    """Return a stream that no other training uses; torch provides 32."""
    with _lock:
        idle = _idle.setdefault(index, [])
        for _ in range(0 if idle else 32):
            stream = torch.cuda.Stream()
            if stream.cuda_stream not in _ours:
                _ours.add(stream.cuda_stream)
                idle.append(stream)
                break
        if not idle:
            raise RuntimeError("more than 32 trainings at the same time on one device; start fewer")
        return idle.pop()


@contextmanager
def _cudnn(deterministic: bool) -> Iterator[None]:
    """Let cuDNN choose convolution algorithms by timing them, or deterministic ones; the setting is process-wide."""
    cudnn = torch.backends.cudnn
    with _lock:
        if _trainings and _trainings[0] != deterministic:
            raise ValueError("a training with another value of deterministic is under way; wait for it to end")
        if not _trainings:
            _before.append((cudnn.benchmark, cudnn.deterministic))
            cudnn.benchmark, cudnn.deterministic = not deterministic, deterministic
        _trainings.append(deterministic)
    try:
        yield
    finally:
        with _lock:
            _trainings.pop()
            if not _trainings:
                cudnn.benchmark, cudnn.deterministic = _before.pop()


def no_capture(device: torch.device) -> AbstractContextManager[Any]:
    """Return a context in which no other thread captures a graph, for a network's operations that are not captured.

    A convolution whose shape is new in a thread lets cuDNN time its algorithms, which waits for the whole device. CUDA
    refuses that while any stream is captured, and breaks off the capture.
    """
    return _lock if device.type == "cuda" else nullcontext()


def capture(function: Callable[[], Any], pool: Any) -> torch.cuda.CUDAGraph:
    """Capture what a function does on the current stream; `pool` is a handle of the memory it may use.

    Torch allows one capture at a time in a process. Other threads may replay graphs meanwhile, on other streams.
    """
    graph = torch.cuda.CUDAGraph()
    reason: BaseException | None = None
    with _lock:
        try:
            graph.capture_begin(pool, "thread_local")
            try:
                function()
            except BaseException as error:
                reason = error
            graph.capture_end()
        except BaseException as error:
            _failed.append(graph)
            with suppress(RuntimeError):  # torch leaves its allocator in the state of a capture
                torch._C._cuda_endAllocateToPool(torch.cuda.current_device(), pool)
            reason = reason or error
    if reason is not None:
        raise reason
    return graph


def side_by_side(
    places: Sequence[torch.device],
    groups: int,
    train: Callable[[int, torch.device, Callable[[], bool]], None],
    stopped: Callable[[], bool],
) -> None:
    """Train groups on devices at the same time, one thread for each device; device k trains the groups k, k + D, ….

    Threads and not processes: rows, custom methods and networks are shared as they are, and torch's operations and
    captured graphs do not hold Python's lock. After an error or a second Ctrl-C the others end at their next step.
    """
    if len(places) == 1:
        for group in range(groups):
            train(group, places[0], stopped)
        return
    halt = threading.Event()

    def work(device: int) -> None:
        try:
            for group in range(device, groups, len(places)):
                usual_settings(train)(group, places[device], lambda: stopped() or halt.is_set())
        except BaseException:
            halt.set()
            raise

    with ThreadPoolExecutor(len(places), "candidly-device") as threads:
        started = [threads.submit(work, device) for device in range(len(places))]
        try:
            wait(started)
        except BaseException:
            halt.set()
            raise
    errors = [error for error in (one.exception() for one in started) if error is not None]
    # A thread that only ended because another one failed has a KeyboardInterrupt.
    for error in sorted(errors, key=lambda one: isinstance(one, KeyboardInterrupt)):
        raise error
