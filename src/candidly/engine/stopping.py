"""When training stops: the held-out covering rate stops improving, or the user interrupts it."""

import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from torch import Tensor

from candidly import metrics
from candidly.checks.arguments import items
from candidly.engine.building import network_tensors
from candidly.engine.contract import Method, Sweep
from candidly.engine.problem import Problem
from candidly.engine.ranks import ALONE, Group


class Watch:
    """Records the covering rate on held-out rows and decides when to stop.

    Parameters
    ----------
    sets : Tensor of bool, shape (R, N, C)
        The original candidate sets, on the training device.
    method : Method
        The method that is trained, after its setup.
    held_out : sequence of Tensor
        Held-out rows of each run, as `check_held_out` returns them.
    patience : int, optional
        Number of epochs without a better covering rate, averaged over runs, after which training stops. None never
        stops, and stores no networks.
    group : Group
        The ranks, which hold further rows.
    """

    def __init__(
        self, sets: Tensor, method: Method, held_out: Sequence[Tensor], patience: int | None, group: Group = ALONE
    ):
        device = sets.device
        self.method = method
        self.patience = patience
        self.rows = torch.nn.utils.rnn.pad_sequence(list(held_out), batch_first=True).to(device)
        counts = torch.tensor([len(rows) for rows in held_out], device=device)
        self.valid = torch.arange(self.rows.shape[1], device=device) < counts[:, None]
        self.group = group
        self.counts = group.total(counts)  # over all ranks
        self.sets = sets[torch.arange(len(sets), device=device)[:, None], self.rows]  # (R, M, C)
        # The best mean rate and the number of epochs since, on the host.
        self.record = torch.tensor([-1.0, 0.0], dtype=torch.float64)
        self.best = {} if patience is None else {k: value.clone() for k, value in network_tensors(method).items()}

    @property
    def over(self) -> bool:
        """Whether training should stop."""
        return self.patience is not None and int(self.record[1]) >= self.patience

    def after_epoch(self, sweep: Sweep) -> Tensor:
        """Return the covering rate of every run (R,); store the networks if the average is the best so far."""
        hits = metrics.covered(sweep(self.method.predict, self.rows), self.sets)
        rate = self.group.total((hits & self.valid).sum(1)).double() / self.counts
        if self.patience is not None:
            mean = float(rate.mean())
            if mean > float(self.record[0]):
                self.record[0], self.record[1] = mean, 0
                for name, value in network_tensors(self.method).items():
                    self.best[name].copy_(value)
            else:
                self.record[1] += 1
        return rate

    def put_back(self) -> None:
        """Restore the networks of the best epoch, the first one if several are equal, if they were stored."""
        networks = network_tensors(self.method)
        for name, value in self.best.items():
            networks[name].copy_(value)

    def state(self) -> dict[str, Tensor]:
        """Return every tensor that changes during training, by name."""
        best = {f"best.{name}": value for name, value in self.best.items()}
        return best | {"record": self.record} if self.patience is not None else {}


def check_held_out(held_out: Sequence[Any] | None, patience: int | None, problem: Problem) -> list[Tensor] | None:
    """Validate `held_out` of `fit`, which `patience` needs; return the rows as sorted tensors on the CPU."""
    if held_out is None:
        if patience is not None:
            raise ValueError(f"patience is {patience} but there are no held-out rows; pass held_out, too")
        return None
    listed = list(items("held_out", held_out, "a list of row numbers for each run"))
    if len(listed) != problem.runs:
        raise ValueError(f"held_out lists {len(listed)} runs but there are {problem.runs}; give rows for each run")
    pairs = enumerate(zip(listed, problem.rows, strict=True))
    found = [_check_rows(run, *rows, len(problem.X)) for run, rows in pairs]
    counts = problem.group.total(torch.tensor([len(rows) for rows in found]))
    if not counts.all():
        raise ValueError(f"run {int((counts == 0).nonzero()[0])} has no held-out rows; give at least one row number")
    return found


def _check_rows(run: int, rows: Any, trained: Tensor, n: int) -> Tensor:
    numbers = rows.detach().cpu().numpy() if isinstance(rows, Tensor) else np.asarray(rows)
    if numbers.ndim != 1 or (numbers.size and numbers.dtype.kind not in "iu"):
        found = f"dtype {numbers.dtype} and shape {numbers.shape}"
        raise ValueError(f"the held-out rows of run {run} have {found}; give at least one row number")
    if not numbers.size:  # another rank may hold rows out
        return torch.zeros(0, dtype=torch.int64)
    index = torch.as_tensor(np.unique(numbers).astype(np.int64))
    if len(index) < numbers.size:
        raise ValueError(f"the held-out rows of run {run} contain a row twice; list every row once")
    if index[0] < 0 or index[-1] >= n:
        ends = f"from {int(index[0])} to {int(index[-1])}"
        raise ValueError(f"the held-out rows of run {run} go {ends} but X has rows 0 to {n - 1}; correct held_out")
    both = index[torch.isin(index, trained.cpu())]
    if len(both):
        raise ValueError(
            f"run {run} trains on row {int(both[0])}, which is also held out; remove it from rows or from held_out"
        )
    return index


@contextmanager
def interruptible(stop: threading.Event | None) -> Iterator[Callable[[], bool]]:
    """Yield a function that returns whether to stop, for use between steps: after Ctrl-C, or when `stop` is set.

    A second Ctrl-C interrupts at once. Python allows signal handlers in the main thread only; in other threads, and
    where the handler cannot be set, only `stop` stops between steps.
    """
    received: list[int] = []

    def stopped() -> bool:
        return bool(received) or (stop is not None and stop.is_set())

    def note(number: int, frame: Any) -> None:
        if received:
            raise KeyboardInterrupt
        received.append(number)

    before = signal.getsignal(signal.SIGINT)
    if before is None or not _handle_interrupt(note):  # None: a handler that Python could not restore
        yield stopped
        return
    try:
        yield stopped
    finally:
        signal.signal(signal.SIGINT, before)


def _handle_interrupt(handler: Callable[[int, Any], None]) -> bool:
    """Set the handler of Ctrl-C; return False in a thread or interpreter that may not set one."""
    try:
        signal.signal(signal.SIGINT, handler)
    except ValueError:
        return False
    return True
