"""The learning problem as the engine sees it: shared rows, candidate sets, and which run trains on which rows."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from candidly import candidates
from candidly.candidates.labels import class_names
from candidly.candidates.sets import warn_of_sameness
from candidly.candidates.weights import uniform_weights
from candidly.checks.arguments import flag, integer, items, shown
from candidly.engine.device import usual_settings
from candidly.engine.memory import require_runs, require_tensor
from candidly.engine.ranks import WHOLE, Group, Shard, Shards

_PURPOSES = ("order", "noise", "sweep", "network", "calibration", "control", "flips")


def stream(seed: int, purpose: str, *index: int, device: torch.device | str = "cpu") -> torch.Generator:
    """Return a generator that depends on its arguments alone.

    A run draws all its random numbers from streams keyed by its seed, a purpose and, for example, the epoch. So no
    generator state has to be saved to resume a run, and a run draws the same numbers alone and together with others.
    """
    word = np.random.SeedSequence([seed, _PURPOSES.index(purpose), *index]).generate_state(1, np.uint64)[0]
    return torch.Generator(device).manual_seed(int(word >> np.uint64(1)))


@dataclass(frozen=True, eq=False)
class Problem:
    """Rows with candidate sets, and R runs that each train on some of the rows.

    Rows are global: all runs share `X`, and what a method stores per row has shape (R, N, ...). All runs take as many
    steps as the longest one, so a run trains as it would alone if their numbers of batches are equal. Use `Problem.of`,
    which converts and validates; the constructor does not.

    Attributes
    ----------
    X : Tensor, shape (N, ...)
        Features, shared by all runs: floating-point numbers, or bytes, which are converted batch by batch.
    S : Tensor of bool, shape (N, C) or (R, N, C)
        Candidate sets, shared or one per run.
    rows : tuple of Tensor
        Training rows of each run, ascending.
    seeds : tuple of int
        Seed of each run.
    y : Tensor or None, shape (N,)
        True labels, for benchmarks only. The engine hides them from methods and cleaners.
    shift, scale : Tensor or None, shape (R, 1, ...)
        Each run's networks see ``(x - shift) * scale``.
    classes : tuple
        Class names.
    standardised : bool
        Whether shift and scale standardise each run's features, rather than being given for all runs.
    weights : Tensor or None, shape (N, C)
        How plausible each label is before training, at most 1.
    groups : Tensor of int or None, shape (N,)
        The group of each row, by number. A cleaner that holds rows out of training holds out whole groups.
    shards : Shards
        How the rows are divided, among processes or within one (`candidly.engine.ranks`).
    """

    X: Tensor
    S: Tensor
    rows: tuple[Tensor, ...]
    seeds: tuple[int, ...]
    y: Tensor | None = None
    shift: Tensor | None = None
    scale: Tensor | None = None
    classes: tuple[Any, ...] = ()
    standardised: bool = False
    weights: Tensor | None = None
    groups: Tensor | None = None
    shards: Shards = WHOLE

    @classmethod
    @usual_settings
    def of(
        cls,
        X: Any,
        S: Any,
        *,
        rows: Sequence[Any] | None = None,
        seeds: Sequence[int] = (0,),
        y: Any = None,
        classes: Sequence[Any] | None = None,
        standardise: bool = False,
        shift: Any = None,
        scale: Any = None,
        weights: Any = None,
        groups: Any = None,
        shards: int | Sequence[int] = 1,
        dtype: torch.dtype = torch.float32,
    ) -> "Problem":
        """Validate and convert the input.

        Under torchrun, X and everything else with one entry per row are the rows of this process, and all processes
        must call this function.

        Parameters
        ----------
        X : array (N, ...)
            Features; finite numbers. Bytes (uint8) stay bytes, a quarter of the memory, if `dtype` is float32.
        S : bool array (N, C) or (R, N, C), or Candidates
            Candidate sets; every row needs at least one candidate.
        rows : sequence of index arrays, optional
            The training rows of each run; by default all rows.
        seeds : sequence of int
            One seed per run; their number is R.
        y : int array (N,), optional
            True labels, for benchmarks only.
        classes : sequence, optional
            Class names; by default 0 … C-1.
        standardise : bool
            Scale the features of every run to mean 0 and standard deviation 1 over its training rows.
        shift, scale : array, optional
            The networks see ``(x - shift) * scale``. Both broadcast against one row, as (3, 1, 1) does against a colour
            image. By default they are 0 and 1.
        weights : array (N, C), optional
            How plausible each candidate is before training, such as its votes. Methods that keep label weights start
            with these instead of equal ones. Only the ratios between a row's candidates matter.
        groups : int array (N,), optional
            The group of each row, such as its scene or recording, by number. Cleaners that hold rows out of training
            (`candidly.cleaning.Conformal` with ``calibration="holdout"``) hold out whole groups. Rows of one group
            must be in one shard.
        shards : int or sequence of int
            Into how many consecutive shards the rows are divided, or the number of rows of each. Every shard draws its
            own order of rows and gives its part of every minibatch, so that a training over W processes equals one
            process with W shards.
        dtype : torch.float32 or torch.float64
            Precision of features, networks and weights. ResNet-9 computes in bfloat16 on CUDA if it is float32
            (`Recipe.precision`).

        Examples
        --------
        >>> problem = Problem.of([[0.0], [1.0]], [[True, False], [True, True]], seeds=[0, 1, 2])
        >>> problem.runs, problem.num_classes
        (3, 2)
        """
        known = isinstance(S, candidates.Candidates)  # and validated already
        if isinstance(S, candidates.Candidates):
            classes = S.classes if classes is None else classes
            S = S.matrix
        # Adam's ε is 0 in float16, and a weight in bfloat16 does not change by less than 1/256 of it.
        if not isinstance(dtype, torch.dtype) or dtype not in (torch.float32, torch.float64):
            raise ValueError(f"dtype is {shown(dtype)}; use torch.float32 or torch.float64")
        sets = _as_sets(S)
        features = as_tensor(X)
        if features.ndim < 2:
            raise ValueError("X must have at least two axes (rows, features); reshape a single feature with X[:, None]")
        seeds = _check_seeds(seeds, sets.shape)
        runs = len(seeds)
        if features.dtype != torch.uint8 or dtype != torch.float32:
            features = round_to(features, dtype)
        for matrix in sets if sets.ndim == 3 else [sets]:
            candidates.check(matrix)
            if not known:
                warn_of_sameness(matrix)
        if sets.ndim == 3 and len(sets) != runs:
            raise ValueError(f"S holds sets for {len(sets)} runs but there are {runs} seeds; give one seed per run")
        if len(features) != sets.shape[-2]:
            raise ValueError(f"X has {len(features)} rows but S has {sets.shape[-2]}; give one candidate set per row")
        if not features.shape[1:].numel():
            raise ValueError(f"X has shape {tuple(features.shape)}, without features; give at least one per row")
        check_finite(features)
        index = _check_runs(rows, runs, len(features))
        names = tuple(range(sets.shape[-1])) if classes is None else class_names(classes)
        if len(names) != sets.shape[-1]:
            raise ValueError(
                f"{len(names)} class names were given but S has {sets.shape[-1]} columns; give one per class"
            )
        truth = None if y is None else check_labels(y, len(features), len(names))
        trust = None if weights is None else check_weights(weights, (len(features), len(names))).to(dtype)
        problem = cls(
            features,
            torch.as_tensor(sets),
            index,
            seeds,
            truth,
            classes=names,
            weights=trust,
            groups=None if groups is None else _check_groups(groups, len(features)),
            shards=Shards.of(shards, len(features)),
        )
        if shift is None and scale is None:
            return problem._standardised() if flag("standardise", standardise) else problem
        if flag("standardise", standardise):
            raise ValueError("standardise=True computes shift and scale; leave them out, or use standardise=False")
        return replace(
            problem,
            shift=problem._for_all_runs("shift", 0 if shift is None else shift),
            scale=problem._for_all_runs("scale", 1 if scale is None else scale),
        )

    @property
    def runs(self) -> int:
        """Number of runs."""
        return len(self.seeds)

    @property
    def group(self) -> Group:
        """The ranks that share the training; `Group.total` sums over them."""
        return self.shards.group

    @property
    def parts(self) -> list[Shard]:
        """The shards that this process holds."""
        return self.shards.parts(len(self.X))

    @property
    def training_counts(self) -> Tensor:
        """Number of training rows of each run in each shard of all ranks, (R, shards), on the CPU."""
        counts = torch.zeros(self.runs, self.shards.count, dtype=torch.int64)
        for shard in self.parts:
            counts[:, shard.number] = torch.tensor([len(shard.of(rows)) for rows in self.rows])
        return self.group.total(counts)

    def refuse_shards(self, part: str) -> None:
        """Raise ValueError if the rows are divided, for a part of a training that must see all of them."""
        if self.shards.count > 1:
            raise ValueError(
                f"{part}, and the rows are divided into {self.shards.count} shards; train in one process without "
                "shards, or choose something else"
            )

    @property
    def num_classes(self) -> int:
        """Number of classes."""
        return self.S.shape[-1]

    @property
    def dtype(self) -> torch.dtype:
        """Precision of networks, label weights and the features that networks see."""
        return self.X.dtype if self.X.is_floating_point() else torch.float32

    @property
    def features(self) -> Tensor:
        """All rows in `dtype`, with a given shift and scale applied, but not standardised, because runs share them."""
        if self.standardised or self.shift is None or self.scale is None:
            return self.X.to(self.dtype)
        return (self.X - self.shift[0]) * self.scale[0]

    @property
    def sets(self) -> Tensor:
        """Candidate sets of every run, (R, N, C); a view if the runs share them."""
        return self.S.expand(self.runs, *self.S.shape[-2:])

    @property
    def initial_weights(self) -> Tensor:
        """Label weights q that a method starts with, a new tensor (R, N, C): 0 outside the candidates, sum 1.

        They are proportional to `weights`, or equal where `weights` is missing or 0 on all of a row's candidates.
        """
        require_tensor(self.sets.shape, self.dtype, self.X.device)
        if self.X.is_meta:  # there is nothing to compute, and arithmetic would import torch's compiler
            return self.new_zeros(*self.sets.shape)
        equal = uniform_weights(self.S, self.dtype).expand(self.sets.shape)
        if self.weights is None:
            return equal.clone()
        inside = torch.where(self.sets, self.weights, 0)
        total = inside.sum(-1, keepdim=True)
        return torch.where(total > 0, inside / total.where(total > 0, 1), equal)

    @property
    def training_mask(self) -> Tensor:
        """Which rows each run trains on, as a boolean matrix (R, N)."""
        mask = self.new_zeros(self.runs, len(self.X), dtype=torch.bool)
        for run, rows in zip(mask, self.rows, strict=True):
            run.index_fill_(0, rows, True)
        return mask

    def new_zeros(self, *shape: Any, dtype: torch.dtype | None = None) -> Tensor:
        """Return zeros on the problem's device, by default in its `dtype`."""
        sizes = shape[0] if len(shape) == 1 and not isinstance(shape[0], int) else shape
        require_tensor(sizes, dtype or self.dtype, self.X.device)
        return self.X.new_zeros(sizes, dtype=dtype or self.dtype)

    @property
    def nbytes(self) -> int:
        """Bytes of all tensors."""
        return sum(value.nbytes for value in (*vars(self).values(), *self.rows) if isinstance(value, Tensor))

    def to(self, device: torch.device) -> "Problem":
        """Return the same problem on another device."""
        moved: dict[str, Any] = {k: value.to(device) for k, value in vars(self).items() if isinstance(value, Tensor)}
        return replace(self, rows=tuple(rows.to(device) for rows in self.rows), **moved)

    def take_runs(self, runs: range) -> "Problem":
        """Return the problem of some consecutive runs; rows are shared, not copied."""
        part = slice(runs.start, runs.stop)
        per_run = {"S": self.S if self.S.ndim == 3 else None, "shift": self.shift, "scale": self.scale}
        taken: dict[str, Any] = {name: value[part] for name, value in per_run.items() if value is not None}
        return replace(self, rows=self.rows[part], seeds=self.seeds[part], **taken)

    def without_rows(self) -> "Problem":
        """Return a problem with the same shapes, classes, seeds and scaling but without rows."""
        X, S = self.X[:0].clone(), self.S[..., :0, :].clone()
        return replace(self, X=X, S=S, rows=(), y=None, weights=None, groups=None, shards=WHOLE)

    def take_shard(self, shard: Shard) -> "Problem":
        """Return the problem of one shard by itself; a scaling that all rows determine is left out."""
        part = slice(shard.start, shard.stop)
        per_row = {"y": self.y, "weights": self.weights, "groups": self.groups}
        taken: dict[str, Any] = {name: value[part] for name, value in per_row.items() if value is not None}
        if self.standardised:
            taken |= {"shift": None, "scale": None}
        rows = tuple(shard.of(one) - shard.start for one in self.rows)
        return replace(self, X=self.X[part], S=self.S[..., part, :], rows=rows, shards=WHOLE, **taken)

    def scaled_to_range(self) -> "Problem":
        """Return the same problem with each feature scaled to [0, 1] over the training rows of each run.

        Features that are constant over them are only shifted.

        Examples
        --------
        >>> problem = Problem.of([[2.0], [4.0], [8.0]], torch.eye(3).bool(), rows=[[0, 1]])
        >>> problem.scaled_to_range().shift.item(), problem.scaled_to_range().scale.item()
        (2.0, 0.5)
        """
        X = self.X.double()
        low = torch.stack([X[rows].amin(0, keepdim=True) for rows in self.rows])
        high = torch.stack([X[rows].amax(0, keepdim=True) for rows in self.rows])
        low = self.group.gather(low, torch.inf).amin(1, keepdim=True)
        span = self.group.gather(high, -torch.inf).amax(1, keepdim=True) - low
        scale = torch.where(span > 0, 1 / span.where(span > 0, 1), 1)
        return replace(self, shift=low.to(self.dtype), scale=scale.to(self.dtype), standardised=True)

    def _standardised(self) -> "Problem":
        X = self.X.double()
        mean = torch.stack([X[rows].mean(0, keepdim=True) for rows in self.rows])
        spread = torch.stack([X[rows].std(0, unbiased=False, keepdim=True) for rows in self.rows])
        if not self.group.alone:
            mean, spread = self._pooled(mean, spread)
        varies = (
            spread > 10 * torch.finfo(X.dtype).eps * mean.abs()
        )  # rounding of a constant feature does not count as variation
        scale = torch.where(varies, 1 / spread.where(varies, 1), 1)
        return replace(self, shift=mean.to(self.dtype), scale=scale.to(self.dtype), standardised=True)

    def _pooled(self, mean: Tensor, spread: Tensor) -> tuple[Tensor, Tensor]:
        """Return the means and standard deviations over all ranks, given those of this process, (R, 1, ...)."""
        number = mean.new_tensor([len(rows) for rows in self.rows]).view(-1, *[1] * (mean.ndim - 1))
        rows = self.group.total(number)
        pooled = self.group.total(number * mean) / rows
        squares = self.group.total(number * (spread.square() + (mean - pooled).square()))
        return pooled, (squares / rows).sqrt()

    def _for_all_runs(self, name: str, value: Any) -> Tensor:
        """Validate a shift or scale and expand it to the shape (R, 1, ...)."""
        row = tuple(self.X.shape[1:])
        numbers = as_tensor(value, name).to(self.dtype)
        lengths = zip(numbers.shape[::-1], row[::-1], strict=False)
        if numbers.ndim > len(row) or any(length not in (1, wanted) for length, wanted in lengths):
            found = tuple(numbers.shape)
            raise ValueError(
                f"{name} has shape {found} but a row of X {row}; give numbers that broadcast against a row"
            )
        if not numbers.isfinite().all():
            raise ValueError(f"{name} contains {numbers[~numbers.isfinite()][0].item()}; pass finite numbers")
        axes = [1] * (len(row) - numbers.ndim)
        return numbers.expand(self.runs, 1, *axes, *numbers.shape).clone()


def as_tensor(X: Any, name: str = "X") -> Tensor:
    """Return an array, a nested list or a tensor as a new tensor on the CPU; raise ValueError if it has no numbers."""
    if isinstance(X, Tensor):
        if X.is_complex() or X.is_quantized or X.layout != torch.strided or X.is_meta:
            kind = f"dtype {X.dtype}, layout {X.layout} and device {X.device}"
            raise ValueError(f"{name} is a tensor of {kind}; pass a dense tensor of real numbers")
        return X.detach().cpu().clone()
    if hasattr(X, "toarray"):
        raise ValueError(f"{name} is sparse; pass {name}.toarray()")
    numbers = _as_array(X, name)
    if numbers.dtype.kind not in "biuf":
        raise ValueError(f"{name} has dtype {numbers.dtype}; pass numbers")
    known = np.float64 if numbers.dtype.itemsize > 8 else numbers.dtype.newbyteorder("=")
    return torch.from_numpy(numbers.astype(known, copy=False))


def _as_array(value: Any, name: str) -> np.ndarray[Any, Any]:
    """Return a copy as an array; torch warns about memory that it cannot write to."""
    if isinstance(value, Tensor):
        return value.detach().cpu().numpy().copy()
    if isinstance(value, np.ma.MaskedArray) and np.ma.getmaskarray(value).any():
        raise ValueError(f"{name} is a masked array with masked entries; fill them, or drop their rows")
    try:
        return np.array(value)
    except (TypeError, ValueError):  # lists of different lengths
        raise ValueError(f"{name} is {shown(value)}, which is not an array; pass rows of equal length") from None


def round_to(X: Tensor, dtype: torch.dtype) -> Tensor:
    """Return features (N, ...) in a dtype; raise ValueError for a finite number that is too large for it."""
    rounded = X.to(dtype)
    if X.is_floating_point() and X.dtype != dtype:
        lost = (rounded.isinf() & ~X.isinf()).flatten(1)
        if lost.any():
            row, column = lost.nonzero()[0].tolist()
            value = X.flatten(1)[row, column].item()
            raise ValueError(
                f"X has {value} in row {row}, column {column}, which is too large for {dtype}; correct the value, or "
                "scale the column"
            )
    return rounded


def _as_sets(S: Any) -> np.ndarray[Any, Any]:
    try:
        return _as_array(S, "S")
    except ValueError:
        raise ValueError("S is not a boolean matrix; convert names with candidly.candidates.encode(S)") from None


def _check_seeds(seeds: Any, sets: tuple[int, ...]) -> tuple[int, ...]:
    """Return the seeds as integers; `sets` is the shape of the candidate sets that every run needs."""
    wanted = "a list with one seed per run, such as [0] or range(5)"
    if not hasattr(items("seeds", seeds, wanted), "__len__") or not len(seeds):
        raise ValueError(f"seeds is {shown(seeds)}; it must be {wanted}")
    if len(sets) > 1:
        require_runs(len(seeds), sets[-2], sets[-1])
    return tuple(integer("one of seeds", seed, least=0) for seed in seeds)


def _check_runs(rows: Any, runs: int, n: int) -> tuple[Tensor, ...]:
    """Return the training rows of each run, ascending; runs with the same list share a tensor."""
    if rows is None:
        return (_check_rows(np.arange(n), n),) * runs
    listed = list(items("rows", rows, "a list of row numbers for each run"))
    if len(listed) != runs:
        raise ValueError(f"rows lists {len(listed)} runs but there are {runs} seeds; give one seed per run")
    checked = {id(one): one for one in listed}
    found = {key: _check_rows(one, n) for key, one in checked.items()}
    return tuple(found[id(one)] for one in listed)


def check_weights(weights: Any, shape: tuple[int, ...]) -> Tensor:
    """Return label weights (rows, classes), scaled so that each row's largest is 1; raise ValueError if invalid."""
    numbers = as_tensor(weights, "weights").double()
    if numbers.shape != shape:
        found = f"{tuple(numbers.shape)}, but there are {shape[0]} rows and {shape[1]} classes"
        raise ValueError(f"weights has shape {found}; give one number per row and class")
    wrong = ~(numbers.isfinite() & (numbers >= 0))
    if wrong.any():
        row, column = wrong.nonzero()[0].tolist()
        value = numbers[row, column].item()
        raise ValueError(f"weights has {value} in row {row}, column {column}; give finite, non-negative numbers")
    return numbers / numbers.amax(1, keepdim=True).clamp_min(torch.finfo(numbers.dtype).tiny)  # fits any precision


def check_finite(X: Tensor) -> None:
    """Raise ValueError for NaN and infinite numbers, naming the first."""
    if not X.is_floating_point():
        return
    finite = X.isfinite().flatten(1)
    if not finite.all():
        row = int((~finite.all(1)).nonzero()[0])
        column = int((~finite[row]).nonzero()[0])
        value = X.flatten(1)[row, column].item()
        raise ValueError(f"X has {value} in row {row}, column {column}; impute it or drop the row")


def _check_rows(rows: Any, n: int) -> Tensor:
    numbers = _as_array(rows, "one of rows")
    if numbers.ndim != 1 or (numbers.dtype.kind not in "iu" and numbers.size):
        found = f"dtype {numbers.dtype} and shape {numbers.shape}"
        raise ValueError(f"a run's training rows have {found}; rows takes a list of row numbers for each run")
    index = torch.as_tensor(numbers, dtype=torch.int64).sort().values
    if len(index) < 2:
        raise ValueError(f"a run has {len(index)} training rows; it needs at least two")
    if index[0] < 0 or index[-1] >= n:
        ends = f"from {int(index[0])} to {int(index[-1])}"
        raise ValueError(f"training rows go {ends} but X has rows 0 to {n - 1}; correct the row numbers in rows")
    if bool((index.diff() == 0).any()):
        raise ValueError(
            f"row {int(index[1:][index.diff() == 0][0])} is listed twice in a run's training rows; list it once"
        )
    return index


def _check_groups(groups: Any, n: int) -> Tensor:
    numbers = _as_array(groups, "groups")
    if numbers.shape != (n,) or numbers.dtype.kind not in "iu":
        found = f"dtype {numbers.dtype} and shape {numbers.shape}, but X has {n} rows"
        raise ValueError(f"groups has {found}; give one integer per row")
    return torch.as_tensor(numbers.astype(np.int64))


def check_labels(y: Any, n: int, num_classes: int) -> Tensor:
    """Return class numbers, one per row, as a tensor; raise ValueError if they are invalid."""
    numbers = _as_array(y, "y")
    if numbers.dtype.kind not in "iu":
        raise ValueError(f"y has dtype {numbers.dtype}; pass class numbers, integers from 0 to {num_classes - 1}")
    labels = torch.as_tensor(numbers, dtype=torch.int64)
    if labels.shape != (n,):
        raise ValueError(f"y has shape {tuple(labels.shape)} but X has {n} rows; give one label per row")
    if n and (labels.min() < 0 or labels.max() >= num_classes):
        raise ValueError(f"y goes from {int(labels.min())} to {int(labels.max())}; classes are 0 to {num_classes - 1}")
    return labels
