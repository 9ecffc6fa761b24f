"""Views of images against a twin that loops over pixels."""

import math

import pytest
import torch

from candidly.engine.nets import augment, sampling


def loop_flip_crop(x, u, padding):
    """One image (channels, height, width): flipped, then shifted, zeros outside."""
    channels, height, width = x.shape
    flip, down, right = u[0] < 0.5, int(u[1] * (2 * padding + 1)), int(u[2] * (2 * padding + 1))
    out = torch.zeros_like(x)
    for channel in range(channels):
        for row in range(height):
            for column in range(width):
                # Cut a window out of the padded image, then flip the window.
                source_row = row + down - padding
                source_column = (width - 1 - column if flip else column) + right - padding
                if 0 <= source_row < height and 0 <= source_column < width:
                    out[channel, row, column] = x[channel, source_row, source_column]
    return out


@pytest.mark.parametrize("padding", [0, 2, 4])
def test_flip_crop_equals_a_loop(padding):
    generator = torch.Generator().manual_seed(padding)
    x = torch.rand(2, 6, 3, 5, 7, generator=generator)
    u = torch.rand(2, 6, 3, generator=generator)
    u[0, 0], u[0, 1] = torch.tensor([0.0, 0.0, 1 - 2**-24]), torch.tensor([0.5, 1 - 2**-24, 0.0])
    found = augment.flip_crop(x, u, padding)
    assert found.shape == x.shape
    for run in range(2):
        for row in range(6):
            assert torch.equal(found[run, row], loop_flip_crop(x[run, row], u[run, row].tolist(), padding))


def test_the_middle_is_the_image_itself():
    x = torch.rand(4, 1, 6, 6)
    assert torch.equal(augment.flip_crop(x, torch.full((4, 3), 0.5)), x)
    flipped = augment.flip_crop(x, torch.tensor([[0.49, 0.5, 0.5]]).expand(4, 3))
    assert torch.equal(flipped, x.flip(-1))


def test_shifts_are_uniform():
    """Every shift from -4 to 4 is as likely as any other."""
    n = 9000
    x = torch.zeros(1, 1, 9, 9)
    x[..., 4, 4] = 1
    u = torch.rand(n, augment.NOISE_PER_VIEW, generator=torch.Generator().manual_seed(0))
    place = augment.flip_crop(x.expand(n, -1, -1, -1), u).flatten(1).argmax(1)
    rows, columns = torch.bincount(place // 9, minlength=9), torch.bincount(place % 9, minlength=9)
    for counts in (rows, columns):
        assert ((counts - n / 9).abs() < 4 * (n / 9) ** 0.5).all()


def loop_strong_view(x, u):
    """One image (channels, height, width), pixel by pixel; coordinates run from the centre."""
    x = loop_flip_crop(x, u[:3], 4)
    angle, across, down, light, contrast, colour = (0.0 if one >= 0.5 else 4 * one - 1 for one in u[3:9])
    channels, height, width = x.shape
    turn = math.radians(30) * angle
    matrix = torch.tensor([[math.cos(turn), math.sin(turn)], [-math.sin(turn), math.cos(turn)]], dtype=x.dtype)
    matrix = matrix @ torch.tensor([[1, 0.3 * across], [0.3 * down, 1]], dtype=x.dtype)
    out = torch.zeros_like(x)
    middle = torch.tensor([(width - 1) / 2, (height - 1) / 2], dtype=x.dtype)
    for row in range(height):
        for column in range(width):
            right, below = (matrix @ (torch.tensor([column, row], dtype=x.dtype) - middle) + middle).tolist()
            for r in (math.floor(below), math.floor(below) + 1):  # bilinear: the four pixels around the place
                for c in (math.floor(right), math.floor(right) + 1):
                    if 0 <= r < height and 0 <= c < width:
                        out[:, row, column] += (1 - abs(below - r)) * (1 - abs(right - c)) * x[:, r, c]
    mean = out.mean()
    deviation = (out - mean).square().mean().sqrt()
    if channels == 3:
        grey = out.mean(0)
        out = grey + (out - grey) * (1 + colour)
    out = mean + (out - mean) * (1 + 0.5 * contrast) + 0.5 * light * deviation
    for row in range(height):
        for column in range(width):
            if all(
                math.floor(u[k] * side) - side // 4 <= place < math.floor(u[k] * side) + side // 4
                for k, place, side in ((9, row, height), (10, column, width))
            ):
                out[:, row, column] = 0
    return out


@pytest.mark.parametrize("shape", [(1, 8, 8), (3, 8, 8), (3, 8, 16), (3, 12, 8)])
def test_a_strong_view_equals_a_loop(shape):
    generator = torch.Generator().manual_seed(sum(shape))
    x = torch.randn(2, 6, *shape, generator=generator, dtype=torch.float64)
    u = torch.rand(2, 6, augment.NOISE_PER_STRONG_VIEW, generator=generator, dtype=torch.float64)
    u[0, 0, 3:9] = 0.2  # every operation
    u[0, 1, 3:9] = 0.7  # none
    found = augment.strong_view(x, u)
    for run in range(2):
        for row in range(6):
            torch.testing.assert_close(found[run, row], loop_strong_view(x[run, row], u[run, row].tolist()))


def test_a_strong_view_of_a_plain_image_only_erases_a_quarter():
    x = torch.rand(1, 3, 8, 8) + 1
    u = torch.full((1, augment.NOISE_PER_STRONG_VIEW), 0.5)
    found = augment.strong_view(x, u)
    assert (found == 0).sum() == 3 * 16
    torch.testing.assert_close(found[found != 0], x[found != 0])


def test_a_cutout_is_a_weak_view_without_a_square():
    x = torch.rand(2, 5, 3, 16, 16) + 1
    u = torch.rand(2, 5, augment.NOISE_PER_CUTOUT, generator=torch.Generator().manual_seed(0))
    found, weak = augment.cutout(x, u), augment.flip_crop(x, u[..., : augment.NOISE_PER_VIEW])
    for run in range(2):
        for image in range(5):
            down, across = (math.floor(16 * value) for value in u[run, image, -2:].tolist())
            expected = weak[run, image].clone()
            expected[:, max(0, down - 3) : down + 3, max(0, across - 3) : across + 3] = 0
            assert torch.equal(found[run, image], expected)


def test_mix_up_equals_a_loop():
    generator = torch.Generator().manual_seed(0)
    x = torch.rand(2, 5, 3, generator=generator, dtype=torch.float64)
    target = torch.rand(4, 2, 5, 6, generator=generator, dtype=torch.float64)
    u = torch.rand(2, 5, augment.NOISE_PER_MIX, generator=generator, dtype=torch.float64)
    mixed_x, mixed_target = augment.mix_up(x, target, u)
    for run in range(2):
        pair = sampling.log_gamma_sample(torch.full((2,), 0.75, dtype=torch.float64), u[run, 0, 1:].view(2, -1)).exp()
        weight = max(pair[0] / pair.sum(), pair[1] / pair.sum())
        assert 0.5 <= weight < 1
        partners = sorted(range(5), key=lambda row: u[run, row, 0].item())
        assert partners != list(range(5))
        for row, partner in enumerate(partners):
            expected = weight * x[run, row] + (1 - weight) * x[run, partner]
            torch.testing.assert_close(mixed_x[run, row], expected)
            expected = weight * target[:, run, row] + (1 - weight) * target[:, run, partner]
            torch.testing.assert_close(mixed_target[:, run, row], expected)
