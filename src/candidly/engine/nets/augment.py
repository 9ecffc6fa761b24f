"""Random views and mixtures of images, computed on the device from given uniforms."""

import torch
from torch import Tensor
from torch.nn import functional as F

from candidly.engine.nets.sampling import NOISE_PER_GAMMA, log_dirichlet_sample

NOISE_PER_VIEW = 3
"""Number of uniforms that one view of one image needs."""

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
