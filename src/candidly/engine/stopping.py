"""When training stops: once held-out rows say that it has ceased to get better, or when somebody interrupts it."""

import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from torch import Tensor

from candidly import metrics
from candidly.engine.building import network_tensors
from candidly.engine.contract import Method, Sweep
from candidly.engine.problem import Problem


class Watch:
    """Watches a training on rows that it does not train on.

    Parameters
    ----------
    sets : Tensor of bool, shape (R, N, C)
        The original candidate sets, on the device where training takes place.
    method : Method
        The method that is trained, set up.
    held_out : sequence of Tensor
        For each run the rows it is watched on, as `check_held_out` returns them.
    patience : int, optional
        After how many epochs without a better covering rate, averaged over runs, training is over. Left out, it never
        is, and no networks are remembered.
    """

    def __init__(self, sets: Tensor, method: Method, held_out: Sequence[Tensor], patience: int | None):
        device = sets.device
        self.method = method
        self.patience = patience
        self.rows = torch.nn.utils.rnn.pad_sequence(list(held_out), batch_first=True).to(device)
        self.counts = torch.tensor([len(rows) for rows in held_out], device=device)
        self.valid = torch.arange(self.rows.shape[1], device=device) < self.counts[:, None]
        self.sets = sets[torch.arange(len(sets), device=device)[:, None], self.rows]  # (R, M, C)
        # The best mean rate and the number of epochs since, on the host.
        self.record = torch.tensor([-1.0, 0.0], dtype=torch.float64)
        self.best = {} if patience is None else {k: value.clone() for k, value in network_tensors(method).items()}

    @property
    def over(self) -> bool:
        """Whether training should stop."""
        return self.patience is not None and int(self.record[1]) >= self.patience

    def after_epoch(self, sweep: Sweep) -> Tensor:
        """Return the covering rate of every run (R,); remember the networks if it is better than ever on average."""
        hits = metrics.covered(sweep(self.method.predict, self.rows), self.sets)
        rate = (hits & self.valid).sum(1).double() / self.counts
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
        """Give the networks the weights of the best epoch, the first of equals, if they were remembered."""
        networks = network_tensors(self.method)
        for name, value in self.best.items():
            networks[name].copy_(value)

    def state(self) -> dict[str, Tensor]:
        """All that changes during training, by name."""
        best = {f"best.{name}": value for name, value in self.best.items()}
        return best | {"record": self.record} if self.patience is not None else {}


def check_held_out(held_out: Sequence[Any] | None, patience: Any, problem: Problem) -> list[Tensor] | None:
    """Check the arguments of `fit` and return the rows as tensors on the CPU, ascending."""
    if patience is not None and (isinstance(patience, bool) or not isinstance(patience, int) or patience < 1):
        raise ValueError(f"patience is {patience!r}; give a number of epochs, 1 or more")
    if held_out is None:
        if patience is not None:
            raise ValueError(f"patience is {patience} but there are no rows to watch; pass held_out, too")
        return None
    if len(held_out) != problem.runs:
        raise ValueError(f"held_out lists {len(held_out)} runs but there are {problem.runs}; give rows for each run")
    return [
        _check_rows(run, *rows, len(problem.X)) for run, rows in enumerate(zip(held_out, problem.rows, strict=True))
    ]


def _check_rows(run: int, rows: Any, trained: Tensor, n: int) -> Tensor:
    numbers = rows.detach().cpu().numpy() if isinstance(rows, Tensor) else np.asarray(rows)
    if numbers.ndim != 1 or not numbers.size or numbers.dtype.kind not in "iu":
        found = f"dtype {numbers.dtype} and shape {numbers.shape}"
        raise ValueError(f"the held-out rows of run {run} have {found}; give at least one row number")
    index = torch.as_tensor(np.unique(numbers).astype(np.int64))
    if len(index) < numbers.size:
        raise ValueError(f"the held-out rows of run {run} hold a row twice; list every row once")
    if index[0] < 0 or index[-1] >= n:
        ends = f"from {int(index[0])} to {int(index[-1])}"
        raise ValueError(f"the held-out rows of run {run} go {ends} but X has rows 0 to {n - 1}")
    both = index[torch.isin(index, trained.cpu())]
    if len(both):
        raise ValueError(f"run {run} trains on row {int(both[0])}, which is held out; take it out of one of the two")
    return index


@contextmanager
def interruptible(stop: threading.Event | None) -> Iterator[Callable[[], bool]]:
    """Say when to stop between steps: after a first Ctrl-C, where a second one interrupts at once, or by an event."""
    received: list[int] = []

    def stopped() -> bool:
        return bool(received) or (stop is not None and stop.is_set())

    if threading.current_thread() is not threading.main_thread():
        yield stopped
        return

    def note(number: int, frame: Any) -> None:
        if received:
            raise KeyboardInterrupt
        received.append(number)

    before = signal.signal(signal.SIGINT, note)
    try:
        yield stopped
    finally:
        signal.signal(signal.SIGINT, before)
