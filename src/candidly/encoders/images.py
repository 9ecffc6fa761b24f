"""Read image files, and resize and scale images on the device as an encoder expects them."""

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional

from candidly.checks.arguments import shown
from candidly.checks.limits import check_bytes

SUFFIXES = (".bmp", ".gif", ".jpeg", ".jpg", ".png", ".ppm", ".tif", ".tiff", ".webp")
"""Suffixes of files that are taken for images when a folder is searched."""

IMAGENET_MEAN = (0.485, 0.456, 0.406)
IMAGENET_STD = (0.229, 0.224, 0.225)
_CHANNELS = (1, 3)


@dataclass(frozen=True)
class Preparation:
    """How an image becomes the input of a network.

    The middle of the image that has the shape of the input is cut out, resized with antialiasing, rounded to bytes,
    divided by 255 and standardised per channel. Cutting comes first, so that a long strip takes no more memory than
    other images.

    Attributes
    ----------
    height, width : int
        The size of the input.
    mean, std : tuple of float
        Of each channel, where pixels are between 0 and 1.
    crop : float or None
        The fraction of the shorter side that is kept; None stretches the whole image to the size of the input.
    interpolation : {"bicubic", "bilinear"}
        How to resize.
    as_bytes : bool
        Whether the input is bytes, which are not standardised.

    Examples
    --------
    >>> preparation = Preparation(2, 2, (0.5,) * 3, (0.5,) * 3)
    >>> preparation.resize(torch.zeros(1, 3, 4, 9, dtype=torch.uint8)).shape
    torch.Size([1, 3, 2, 2])
    >>> str(preparation)
    '2x2 bicubic, crop 1.0'
    """

    height: int
    width: int
    mean: tuple[float, ...] = IMAGENET_MEAN
    std: tuple[float, ...] = IMAGENET_STD
    crop: float | None = 1.0
    interpolation: Literal["bicubic", "bilinear"] = "bicubic"
    as_bytes: bool = False

    def __str__(self) -> str:
        cut = "stretched" if self.crop is None else f"crop {self.crop}"
        return f"{self.height}x{self.width} {self.interpolation}, {cut}"

    def resize(self, images: Tensor) -> Tensor:
        """Return images of bytes, (b, 3, h, w), in the size of the input, as bytes."""
        height, width = images.shape[-2:]
        if self.crop is not None:
            scale = self.crop * min(height / self.height, width / self.width)
            taken = max(round(scale * self.height), 1), max(round(scale * self.width), 1)
            top, left = (height - taken[0]) // 2, (width - taken[1]) // 2
            images = images[..., top : top + taken[0], left : left + taken[1]]
        if images.shape[-2:] == (self.height, self.width):
            return images
        size = (self.height, self.width)
        resized = functional.interpolate(images.float(), size, mode=self.interpolation, antialias=True)
        return resized.clamp_(0, 255).round_().byte()

    def standardise(self, images: Tensor) -> Tensor:
        """Return resized images as numbers, channels last in memory, which is twice as fast on a CPU."""
        if self.as_bytes:
            return images
        mean, std = (torch.tensor(value, device=images.device).view(-1, 1, 1) for value in (self.mean, self.std))
        return ((images.float() / 255 - mean) / std).contiguous(memory_format=torch.channels_last)


def read_image(path: str | os.PathLike[str]) -> Tensor:
    """Read an image file as bytes, (3, height, width): upright, and in RGB.

    Raises
    ------
    ValueError
        When the file is not an image, is damaged, or takes more memory than is allowed. The message names the file.
    FileNotFoundError, OSError
        When it does not exist or cannot be read.
    """
    from PIL import Image, ImageOps, UnidentifiedImageError

    name = os.fsdecode(path)
    if not Path(name).is_file():
        raise FileNotFoundError(f"{name} does not exist or is not a file; check the path")
    try:
        with Image.open(name) as opened:
            check_bytes(name, 3 * opened.width * opened.height, Path(name).stat().st_size)
            if opened.mode.startswith(("I", "F")):
                raise ValueError(f"{name} has pixels of more than 8 bits (mode {opened.mode}); convert it to 8 bits")
            image = ImageOps.exif_transpose(opened).convert("RGB")
    except UnidentifiedImageError:
        raise ValueError(f"{name} is not an image or is damaged; repair or remove it") from None
    except (SyntaxError, EOFError, OSError, Image.DecompressionBombError) as error:
        if isinstance(error, OSError) and error.errno is not None:
            raise OSError(f"{name} cannot be read: {error.strerror}; check the file") from error
        reason = " ".join(str(error).split())[:200]
        raise ValueError(f"{name} cannot be read as an image ({reason}); repair or remove it") from None
    return _of_pixels(np.array(image))


def to_tensor(item: Any) -> Tensor:
    """Return one image, a path, an array (height, width, channels) or an image of PIL, as `read_image` does."""
    if isinstance(item, str | os.PathLike):
        return read_image(item)
    if hasattr(item, "convert"):
        item = item.convert("RGB")
    array = np.asarray(item)
    if array.dtype != np.uint8 or array.ndim not in (2, 3):
        raise ValueError(
            f"X holds {shown(item)}; pass paths of image files, or images of bytes (uint8), (height, width, channels)"
        )
    return to_tensors(array[None, ..., None] if array.ndim == 2 else array[None])[0]


def to_tensors(images: NDArray[Any]) -> Tensor:
    """Return an array of images, (n, h, w, channels) or (n, channels, h, w), as bytes (n, 3, h, w)."""
    if images.dtype != np.uint8:
        raise ValueError(
            f"X holds images of {images.dtype}; pass bytes (uint8) from 0 to 255, for example "
            "(255 * X).round().astype('uint8')"
        )
    if images.shape[-1] in _CHANNELS:
        images = images.transpose(0, 3, 1, 2)
    elif images.shape[1] not in _CHANNELS:
        raise ValueError(
            f"X holds images of shape {images.shape[1:]}; pass (height, width, channels) with 1 or 3 channels"
        )
    if 0 in images.shape[1:]:
        raise ValueError(f"X holds images of shape {images.shape[1:]}, which have no pixels; remove them")
    return torch.from_numpy(np.ascontiguousarray(images)).expand(-1, 3, -1, -1)


def _of_pixels(pixels: NDArray[np.uint8]) -> Tensor:
    return torch.from_numpy(pixels).permute(2, 0, 1).contiguous()
