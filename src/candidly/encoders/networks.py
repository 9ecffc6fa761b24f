"""Find an encoder by its name, load it, and take the digest of its weights."""

import hashlib
import importlib
import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib.metadata import version
from importlib.util import find_spec
from typing import Any, Literal

import torch
from torch import Tensor, nn

from candidly.checks import arguments
from candidly.encoders.images import Preparation
from candidly.messages import did_you_mean

Kind = Literal["image", "text"]


@dataclass(frozen=True, eq=False)
class Network:
    """A pretrained network that is ready to encode.

    Attributes
    ----------
    encode : callable
        From prepared images (b, 3, height, width) on the device, or from a list of b texts, to features (b, d).
    version : str
        The packages that run it, with their versions.
    weights : str
        The SHA-256 digest of its weights.
    preparation : Preparation, str or None
        How images are prepared; for texts, what identifies how they are cut into tokens.
    batch_size : int or None
        The number of rows that it takes at a time, if it takes no other number.
    """

    encode: Callable[[Any], Tensor]
    version: str
    weights: str
    preparation: Preparation | str | None = None
    batch_size: int | None = None


@dataclass(frozen=True)
class Scheme:
    """A kind of encoder: where its networks come from.

    Attributes
    ----------
    kinds : tuple of str
        What its networks encode: "image", "text" or both.
    module, function : str
        Where the function that loads a network is: it takes the text behind the colon of a name, the kind of input and
        the device, and returns a `Network`.
    example : str
        How a name is written.
    summary : str
        One line for people.
    """

    kinds: tuple[Kind, ...]
    module: str
    function: str
    example: str
    summary: str


ENCODERS: Mapping[str, Scheme] = {
    "efficientnet-lite0": Scheme(
        ("image",),
        "vision",
        "load_efficientnet_lite0",
        "efficientnet-lite0",
        "EfficientNet-Lite0, trained on ImageNet; 1280 features; runs offline",
    ),
    "all-minilm-l6-v2": Scheme(
        ("text",),
        "hub",
        "load_all_minilm",
        "all-minilm-l6-v2",
        "the sentence transformer all-MiniLM-L6-v2; 384 features; runs offline",
    ),
    "timm": Scheme(("image",), "vision", "load_timm", "timm:NAME", "networks of timm"),
    "open_clip": Scheme(
        ("image",), "vision", "load_open_clip", "open_clip:NAME/PRETRAINED", "image towers of CLIP networks"
    ),
    "transformers": Scheme(
        ("image", "text"), "hub", "load_transformers", "transformers:NAME", "networks of Hugging Face, such as BLIP-2"
    ),
    "sentence-transformers": Scheme(
        ("text",), "hub", "load_sentence_transformers", "sentence-transformers:NAME", "sentence transformers"
    ),
    "onnx": Scheme(("image",), "vision", "load_onnx", "onnx:FILE", "a file of ONNX"),
}
"""Encoders by name, or by the scheme before the colon of a name."""


def load(name: str, kind: Kind, device: torch.device) -> Network:
    """Load an encoder. Raise ValueError for an unknown name, ImportError for a missing package, OSError for a file."""
    scheme, rest = find(name, kind)
    if find_spec("huggingface_hub") is not None:
        importlib.import_module("huggingface_hub")  # which sets a level of its own when it is imported
        logging.getLogger("huggingface_hub").setLevel(logging.ERROR)  # an error follows its warnings
    function = getattr(importlib.import_module(f"candidly.encoders.{scheme.module}"), scheme.function)
    return function(rest, kind, device)


def find(name: str, kind: Kind) -> tuple[Scheme, str]:
    """Return the scheme of an encoder and the text behind the colon; raise ValueError if there is no such encoder.

    Examples
    --------
    >>> find("timm:resnet18", "image")[1]
    'resnet18'
    >>> find("efficientnet", "image")  # doctest: +ELLIPSIS
    Traceback (most recent call last):
        ...
    ValueError: encoder is 'efficientnet' (did you mean 'efficientnet-lite0'?); for images use efficientnet-lite0, ...
    """
    text = arguments.text("encoder", name, "the name of an encoder")
    first, colon, rest = text.partition(":")
    scheme = ENCODERS.get(first)
    usable = [one.example for one in ENCODERS.values() if kind in one.kinds]
    named = scheme is not None and bool(colon) == (":" in scheme.example) and bool(rest) == bool(colon)
    if scheme is None or not named or kind not in scheme.kinds:
        hint = did_you_mean(first, ENCODERS) if scheme is None else ""
        if scheme is not None and kind not in scheme.kinds:
            hint = f", which encodes {scheme.kinds[0]}s"
        raise ValueError(f"encoder is {arguments.shown(name)}{hint}; for {kind}s use {', '.join(usable)}")
    return scheme, rest


def need(module: str, encoder: str, install: str) -> Any:
    """Import a package that an encoder needs.

    Raises
    ------
    ModuleNotFoundError
        When it is not installed: the message says how to install it.
    ImportError
        When it is installed but does not work.
    """
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        if error.name != module.partition(".")[0]:
            raise ImportError(f"{module}, which {encoder} needs, lacks the package {error.name}; install it") from error
        raise ModuleNotFoundError(
            f"{encoder} needs the package {module}, which is not installed; run `pip install {install}`",
            name=error.name,
        ) from None
    except (ImportError, OSError, RuntimeError) as error:  # such as a build of torchvision for another build of torch
        reason = " ".join(str(error).split())[:200]
        raise ImportError(
            f"{module}, which {encoder} needs, cannot be imported ({reason}); install it again, for your build of torch"
        ) from error


def versions(*packages: str) -> str:
    """Return the versions of installed packages, as text."""
    return ", ".join(f"{package} {version(package)}" for package in packages)


def digest(network: nn.Module) -> str:
    """Return the SHA-256 digest of the weights of a network: names, types, shapes and values."""
    found = hashlib.sha256()
    for name, value in sorted(network.state_dict().items()):
        found.update(f"{name} {value.dtype} {tuple(value.shape)}\n".encode())
        found.update(value.detach().cpu().contiguous().view(-1).view(torch.uint8).numpy().data)
    return found.hexdigest()


def ready(network: Any, device: torch.device) -> Any:
    """Return a network on the device, for evaluation, with channels last in memory."""
    return network.eval().requires_grad_(False).to(device, memory_format=torch.channels_last)


def not_loaded(encoder: str, error: Exception) -> OSError:
    """Return the error for an encoder whose weights are missing or cannot be downloaded."""
    reason = " ".join(str(error).split())
    reason = reason if len(reason) <= 200 else f"{reason[:200]}…"
    return OSError(
        f"{encoder} cannot be loaded ({reason}); check its name and the connection, or name files on this machine"
    )
