"""Random views and mixtures of images, computed on the device from given uniforms."""

import math

import torch
from torch import Tensor
from torch.nn import functional as F

from candidly.engine.nets.sampling import NOISE_PER_GAMMA, log_dirichlet_sample

NOISE_PER_VIEW = 3
"""Number of uniforms that one weak view of one image needs."""

NOISE_PER_CUTOUT = NOISE_PER_VIEW + 2
"""Number of uniforms that one view with a square cut out needs."""

NOISE_PER_STRONG_VIEW = NOISE_PER_VIEW + 8
"""Number of uniforms that one strong view of one image needs."""

_ROTATION = math.pi / 6  # largest angle
_SHEAR = 0.3  # largest shear, per axis
_BRIGHTNESS = 0.5  # largest shift, in standard deviations of the image
_CONTRAST = 0.5  # largest change of the factor 1
_CUTOUT, _CUTOUT_STRONG = 0.375, 0.5  # side of the square that is replaced by zeros, as a fraction of the image's

NOISE_PER_MIX = 1 + 2 * NOISE_PER_GAMMA
"""Number of uniforms per image that `mix_up` needs."""


def flip_crop(x: Tensor, u: Tensor, padding: int = 4) -> Tensor:
    """Return images flipped left to right with probability 1/2 and shifted by up to `padding` pixels, zeros outside.

    Parameters
    ----------
    x : Tensor, shape (..., channels, height, width)
        Images.
    u : Tensor, shape (..., 3)
        Uniforms in [0, 1): flip, vertical and horizontal shift.
    """
    height, width = x.shape[-2:]
    shift = (u[..., 1:] * (2 * padding + 1)).long()  # 0 … 2·padding
    rows = torch.arange(height, device=x.device) + shift[..., :1]
    columns = torch.arange(width, device=x.device) + shift[..., 1:]
    columns = torch.where(u[..., :1] < 0.5, columns.flip(-1), columns)
    padded = F.pad(x, [padding] * 4)
    index = (rows.unsqueeze(-1) * padded.shape[-1] + columns.unsqueeze(-2)).flatten(-2).unsqueeze(-2)
    return padded.flatten(-2).gather(-1, index.expand(*x.shape[:-2], -1)).view_as(x)


def cutout(x: Tensor, u: Tensor) -> Tensor:
    """Return images flipped and shifted as by `flip_crop`, with a square replaced by zeros.

    The square has 3/8 of the image's height and width. Its centre may lie anywhere, so it can be cut off by the border
    (T. DeVries and G. Taylor, *Improved Regularization of Convolutional Neural Networks with Cutout*, 2017).

    Parameters
    ----------
    x : Tensor, shape (..., channels, height, width)
        Images.
    u : Tensor, shape (..., NOISE_PER_CUTOUT)
        Uniforms in [0, 1).
    """
    place, down, across = u.split([NOISE_PER_VIEW, 1, 1], -1)
    return _erase(flip_crop(x, place), down.squeeze(-1), across.squeeze(-1), _CUTOUT)


def _magnitude(u: Tensor) -> Tensor:
    """Return 0 with probability 1/2, otherwise a uniform number in [-1, 1), given uniforms in [0, 1)."""
    return torch.where(u < 0.5, 4 * u - 1, 0.0)


def strong_view(x: Tensor, u: Tensor) -> Tensor:
    """Return images flipped and shifted as by `flip_crop`, then distorted, recoloured and with a square erased.

    Six operations each apply with probability 1/2 and a random strength: rotation by up to 30 degrees, shear by up to
    0.3 along both axes, brightness, contrast and, for three channels, saturation. A square of half the image's height
    and width is replaced by zeros, as by `cutout`. This is in the manner of RandAugment (E. Cubuk et al., CVPR
    Workshops 2020), with operations that fit standardised images.

    Parameters
    ----------
    x : Tensor, shape (..., channels, height, width)
        Images.
    u : Tensor, shape (..., NOISE_PER_STRONG_VIEW)
        Uniforms in [0, 1).
    """
    x = flip_crop(x, u[..., :NOISE_PER_VIEW])
    angle, across, down, light, contrast, colour, row, column = u[..., NOISE_PER_VIEW:].unbind(-1)
    x = _turn(x, _ROTATION * _magnitude(angle), _SHEAR * _magnitude(across), _SHEAR * _magnitude(down))
    light, contrast, colour = (_magnitude(one)[..., None, None, None] for one in (light, contrast, colour))
    mean = x.mean((-3, -2, -1), keepdim=True)
    deviation = (x - mean).square().mean((-3, -2, -1), keepdim=True).sqrt()
    if x.shape[-3] == 3:
        x = torch.lerp(x.mean(-3, keepdim=True).expand_as(x), x, 1 + colour)
    x = mean + (x - mean) * (1 + _CONTRAST * contrast) + _BRIGHTNESS * light * deviation
    return _erase(x, row, column, _CUTOUT_STRONG)


def _turn(x: Tensor, angle: Tensor, across: Tensor, down: Tensor) -> Tensor:
    """Rotate and shear images about their centres, with bilinear interpolation and zeros outside."""
    cos, sin = angle.cos(), angle.sin()
    zero = torch.zeros_like(angle)
    ratio = x.shape[-2] / x.shape[-1]  # affine_grid measures each axis by its own length
    first = torch.stack([cos + sin * down, (cos * across + sin) * ratio, zero], -1)
    second = torch.stack([(cos * down - sin) / ratio, cos - sin * across, zero], -1)
    flat = x.flatten(0, -4)
    matrix = torch.stack([first, second], -2).flatten(0, -3)
    grid = F.affine_grid(matrix, list(flat.shape), align_corners=False)
    return F.grid_sample(flat, grid, align_corners=False).view_as(x)


def _erase(x: Tensor, down: Tensor, across: Tensor, part: float) -> Tensor:
    """Replace a square of a part of the height and width by zeros, given uniforms for its centre."""

    def inside(length: int, u: Tensor) -> Tensor:
        centre = (u * length).floor().unsqueeze(-1)
        place = torch.arange(length, device=x.device)
        half = max(1, int(part * length / 2))
        return (place >= centre - half) & (place < centre + half)

    rows, columns = inside(x.shape[-2], down), inside(x.shape[-1], across)
    return x.masked_fill((rows.unsqueeze(-1) & columns.unsqueeze(-2)).unsqueeze(-3), 0.0)


VIEWS = {
    "weak": (flip_crop, NOISE_PER_VIEW),
    "cutout": (cutout, NOISE_PER_CUTOUT),
    "strong": (strong_view, NOISE_PER_STRONG_VIEW),
}
"""The kinds of views, each a function of images and uniforms, and the number of uniforms per image."""


def mix_up(x: Tensor, target: Tensor, u: Tensor, beta: float = 0.75) -> tuple[Tensor, Tensor]:
    """Return inputs and targets mixed with those of a random row of the run (H. Zhang et al., *mixup*, ICLR 2018).

    The weight max(b, 1 - b) of the row itself, b ~ Beta(beta, beta), is the same for all rows of a run.

    Parameters
    ----------
    x : Tensor, shape (R, B, ...)
        Inputs.
    target : Tensor, shape (..., R, B, C)
        Targets.
    u : Tensor, shape (R, B, NOISE_PER_MIX)
        Uniforms in [0, 1).
    """
    order = u[..., 0].argsort(1)
    weight = log_dirichlet_sample(u.new_full((len(u), 2), beta), u[:, 0, 1:]).exp().amax(-1)
    partner = x.gather(1, order.view(*order.shape, *[1] * (x.ndim - 2)).expand_as(x))
    other = target.gather(-2, order.unsqueeze(-1).expand_as(target))
    mixed = torch.lerp(partner, x, weight.view(-1, *[1] * (x.ndim - 1)))
    return mixed, torch.lerp(other, target, weight[:, None, None])
