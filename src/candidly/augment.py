"""Random views of images, made on the device from given uniforms."""

import torch
from torch import Tensor
from torch.nn import functional as F

NOISE_PER_VIEW = 3
"""How many uniforms one view of one image consumes."""


def flip_crop(x: Tensor, u: Tensor, padding: int = 4) -> Tensor:
    """Flip each image left to right with probability one half and shift it by up to `padding` pixels, zeros outside.

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
