"""Read image files, and resize and scale images on the device as an encoder expects them."""

import math
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional

from candidly.checks.arguments import shown
from candidly.checks.limits import check_bytes
from candidly.checks.machine import fault
from candidly.messages import cut

SUFFIXES = (
    *(".avif", ".bmp", ".gif", ".jfif", ".jp2", ".jpe", ".jpeg", ".jpg"),
    *(".pgm", ".png", ".ppm", ".tga", ".tif", ".tiff", ".webp"),
)
"""Suffixes of files that are taken for images when a folder is searched."""

_FORMATS = ("AVIF", "BMP", "GIF", "JPEG", "JPEG2000", "PNG", "PPM", "TGA", "TIFF", "WEBP")  # names of Pillow's readers
_MARGIN = 2  # a JPEG is decoded with at least this many times the pixels, by side, that it is resized to
_COPIES = 6  # of an image in memory while it is read: by Pillow, turned, converted, as bytes and as an array

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
    '2x2 bicubic, crop 1.0, mean 0.5/0.5/0.5, std 0.5/0.5/0.5'
    """

    height: int
    width: int
    mean: tuple[float, ...] = IMAGENET_MEAN
    std: tuple[float, ...] = IMAGENET_STD
    crop: float | None = 1.0
    interpolation: Literal["bicubic", "bilinear"] = "bicubic"
    as_bytes: bool = False

    def __str__(self) -> str:
        crop = "stretched" if self.crop is None else f"crop {self.crop}"
        mean, std = ("/".join(f"{one:.6g}" for one in values) for values in (self.mean, self.std))
        scale = "bytes" if self.as_bytes else f"mean {mean}, std {std}"
        return f"{self.height}x{self.width} {self.interpolation}, {crop}, {scale}"

    @property
    def side(self) -> int:
        """The number of pixels that the shorter side of an image should have at least, to be resized well."""
        return math.ceil(_MARGIN * max(self.height, self.width) / (self.crop or 1.0))

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
        if images.device.type == "cpu":  # resizes bytes, in a quarter of the memory and less than half the time
            return functional.interpolate(images, size, mode=self.interpolation, antialias=True)
        resized = functional.interpolate(images.float(), size, mode=self.interpolation, antialias=True)
        return resized.clamp_(0, 255).round_().byte()

    def standardise(self, images: Tensor) -> Tensor:
        """Return resized images as numbers, channels last in memory, which is twice as fast on a CPU."""
        if self.as_bytes:
            return images
        mean, std = (torch.tensor(value, device=images.device).view(-1, 1, 1) for value in (self.mean, self.std))
        return ((images.float() / 255 - mean) / std).contiguous(memory_format=torch.channels_last)


def read_image(path: str | os.PathLike[str], side: int | None = None) -> Tensor:
    """Read an image file as bytes, (3, height, width): upright, in RGB, transparent parts on white.

    With `side`, a JPEG is decoded at a half, a quarter or an eighth of its size if both sides keep at least `side`
    pixels: a photo of 12 megapixels then takes a tenth of the time.

    Raises
    ------
    ValueError
        When the file is not an image, is damaged, or takes more memory than is allowed. The message names the file.
    FileNotFoundError, OSError
        When it does not exist or cannot be read.
    """
    from PIL import Image

    name = os.fsdecode(path)
    if not os.path.isfile(name):
        raise FileNotFoundError(f"{cut(name, 200)} does not exist or is not a file; check the path")
    with _naming(name):
        image = Image.open(name, formats=_FORMATS)
    with image:
        if side is not None:
            image.draft(None, (side, side))
        _check_bits(image, name)
        check_bytes(name, 3 * _COPIES * image.width * image.height, os.path.getsize(name))
        with _naming(name):
            return _upright(image)


@contextmanager
def _naming(name: str) -> Iterator[None]:
    """Raise an error of Pillow again, with the name of the file."""
    from PIL import UnidentifiedImageError

    try:
        yield
    except UnidentifiedImageError:
        raise ValueError(f"{name} is not an image or is damaged; repair or remove it") from None
    except Exception as error:  # readers meet damaged files with errors of many types
        if fault(error):
            raise
        if isinstance(error, OSError) and error.errno is not None:
            raise OSError(f"{name} cannot be read: {error.strerror}; check the file") from error
        reason = " ".join(str(error).split())[:200]
        raise ValueError(f"{name} cannot be read as an image ({reason}); repair or remove it") from None


def to_tensor(item: Any, side: int | None = None) -> Tensor:
    """Return one image, a path, an array (height, width, channels) or an image of PIL, as `read_image` does."""
    if isinstance(item, str | os.PathLike):
        return read_image(item, side)
    if hasattr(item, "getexif"):
        _check_bits(item, "an image of X")
        return _upright(item)
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


def _check_bits(image: Any, name: str) -> None:
    """Raise ValueError if the pixels of an image of PIL have more than 8 bits, which would be cut off."""
    if image.mode.startswith(("I", "F")):
        raise ValueError(f"{name} has pixels of more than 8 bits (mode {image.mode}); convert it to 8 bits")


def _upright(image: Any) -> Tensor:
    """Return an image of PIL as bytes, (3, height, width), channels last in memory."""
    from PIL import Image, ImageOps

    turned = ImageOps.exif_transpose(image)
    if turned.has_transparency_data:
        turned = turned.convert("RGBA")
        turned = Image.alpha_composite(Image.new("RGBA", turned.size, "white"), turned)
    return torch.from_numpy(np.array(turned.convert("RGB"))).permute(2, 0, 1)
