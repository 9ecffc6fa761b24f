"""The Triton kernels behind `candidly.engine.nets.kernels.images`, which explains what they compute.

Rows are pixels, or windows of four pixels with pooling. Columns are channels: `width` of them, of which the first
`channels` are not padding. A width is given as a number of units, with a unit size that divides it.
"""
# Triton's kernels take no annotations that mypy knows.
# mypy: allow-untyped-defs, allow-incomplete-defs, allow-untyped-calls, allow-untyped-decorators

import triton
import triton.language as tl

_VECTORS = ["weight", "bias", "shift", "running_mean", "running_variance", "batches"]  # may be views into one buffer


@triton.jit
def _vectors(mean, inverse, weight, bias, column, width, channels):
    """Load a tile's mean, inverse deviation, scale and bias, of which the last two are 0 in padded channels."""
    own = column < channels
    centre = tl.load(mean + column, mask=column < width, other=0.0)[None, :]
    factor = tl.load(inverse + column, mask=column < width, other=0.0)[None, :]
    scale = factor * tl.load(weight + column, mask=own, other=0.0)[None, :]
    offset = tl.load(bias + column, mask=own, other=0.0)[None, :]
    return centre, factor, scale, offset


@triton.jit
def _window(row, side):
    """First pixel of each 2×2 window, in images of `side` columns; the others are 1, side and side + 1 further on."""
    half = side // 2
    return 2 * (row // half * side + row % half)


@triton.jit
def _pixels(window, width, side, valid, centre):
    """Load the four pixels of each window, less the mean."""
    below = window + side * width
    value0 = tl.load(window, mask=valid, other=0.0).to(tl.float32) - centre
    value1 = tl.load(window + width, mask=valid, other=0.0).to(tl.float32) - centre
    value2 = tl.load(below, mask=valid, other=0.0).to(tl.float32) - centre
    value3 = tl.load(below + width, mask=valid, other=0.0).to(tl.float32) - centre
    return value0, value1, value2, value3


@triton.jit
def _first_maximum(value0, value1, value2, value3, scale):
    """Whichever value times the scale is largest, the first of equals."""
    chosen = tl.where(value1 * scale > value0 * scale, value1, value0)
    chosen = tl.where(value2 * scale > chosen * scale, value2, chosen)
    return tl.where(value3 * scale > chosen * scale, value3, chosen)


@triton.jit(do_not_specialize=["rows", "units", "chunk"])
def moments(
    x, means, squares, rows, units, chunk,
    UNIT: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr, STAGES: tl.constexpr,
):  # fmt: skip
    """Each chunk's mean and sum of squared deviations: Welford down the slots of a tile, Chan across them."""
    width = units * UNIT
    blocks = tl.cdiv(width, COLUMNS)
    part = tl.program_id(0) // blocks
    column = tl.program_id(0) % blocks * COLUMNS + tl.arange(0, COLUMNS)
    slot = tl.arange(0, ROWS)
    start = part * chunk
    stop = tl.minimum(start + chunk, rows)
    mean = tl.zeros((ROWS, COLUMNS), tl.float32)
    square = tl.zeros((ROWS, COLUMNS), tl.float32)
    for first in tl.range(start, stop, ROWS, num_stages=STAGES):
        row = first + slot
        valid = (row < stop)[:, None] & (column < width)[None, :]
        value = tl.load(x + row.to(tl.int64)[:, None] * width + column[None, :], mask=valid, other=0.0).to(tl.float32)
        delta = tl.where(valid, value - mean, 0.0)
        mean += delta * (1.0 / ((first - start) // ROWS + 1))
        square += delta * (value - mean)
    count = ((stop - start - slot + ROWS - 1) // ROWS).to(tl.float32)[:, None]
    centre = tl.sum(mean * count, 0) / (stop - start)
    away = mean - centre[None, :]
    spread = tl.sum(square + count * away * away, 0)
    tl.store(means + part * width + column, centre, mask=column < width)
    tl.store(squares + part * width + column, spread, mask=column < width)


@triton.jit(do_not_specialize=["rows", "width", "channels", "chunk", "parts"], do_not_specialize_on_alignment=_VECTORS)
def statistics(
    means, squares, mean, inverse, shift, running_mean, running_variance, batches, rows, width, channels, chunk, parts,
    momentum, epsilon, PARTS: tl.constexpr, COLUMNS: tl.constexpr,
):  # fmt: skip
    """Mean and inverse deviation from those of the chunks; the running statistics move on."""
    column = tl.program_id(0) * COLUMNS + tl.arange(0, COLUMNS)
    part = tl.arange(0, PARTS)
    valid = (part < parts)[:, None] & (column < width)[None, :]
    place = part[:, None] * width + column[None, :]
    of_part = tl.load(means + place, mask=valid, other=0.0)
    square = tl.load(squares + place, mask=valid, other=0.0)
    size = tl.where(part < parts, tl.minimum(rows - part * chunk, chunk), 0).to(tl.float32)[:, None]
    total = rows.to(tl.float32)
    centre = tl.sum(of_part * size, 0) / total
    away = of_part - centre[None, :]
    variance = tl.sum(square + size * away * away, 0) / total
    tl.store(mean + column, centre, mask=column < width)
    tl.store(inverse + column, 1.0 / tl.sqrt(variance + epsilon), mask=column < width)
    own = column < channels
    before = tl.load(running_mean + column, mask=own, other=0.0)
    now = centre + tl.load(shift + column, mask=own, other=0.0)
    tl.store(running_mean + column, before + momentum * (now - before), mask=own)
    before = tl.load(running_variance + column, mask=own, other=0.0)
    now = variance * (total / tl.maximum(total - 1.0, 1.0))
    tl.store(running_variance + column, before + momentum * (now - before), mask=own)
    if tl.program_id(0) == 0:
        tl.store(batches, tl.load(batches) + 1)


@triton.jit(do_not_specialize=["rows", "units", "channels"], do_not_specialize_on_alignment=_VECTORS)
def apply(
    x, residual, y, mean, inverse, weight, bias, rows, units, channels,
    ADD: tl.constexpr, UNIT: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr,
):  # fmt: skip
    """Write y = ReLU(normalised x), plus the residual with ADD."""
    width = units * UNIT
    blocks = tl.cdiv(width, COLUMNS)
    row = tl.program_id(0) // blocks * ROWS + tl.arange(0, ROWS)
    column = tl.program_id(0) % blocks * COLUMNS + tl.arange(0, COLUMNS)
    valid = (row < rows)[:, None] & (column < width)[None, :]
    place = row.to(tl.int64)[:, None] * width + column[None, :]
    value = tl.load(x + place, mask=valid, other=0.0).to(tl.float32)
    centre, _, scale, offset = _vectors(mean, inverse, weight, bias, column, width, channels)
    value = (value - centre) * scale + offset
    value = tl.where(value < 0.0, 0.0, value)  # which leaves a NaN one
    if ADD:
        value += tl.load(residual + place, mask=valid, other=0.0).to(tl.float32)
    tl.store(y + place, value.to(y.dtype.element_ty), mask=valid)


@triton.jit(do_not_specialize=["rows", "units", "channels", "side"], do_not_specialize_on_alignment=_VECTORS)
def apply_pooled(
    x, y, mean, inverse, weight, bias, rows, units, channels, side,
    UNIT: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr,
):  # fmt: skip
    """Write y = the maximum over 2×2 windows of ReLU(normalised x); `rows` counts windows."""
    width = units * UNIT
    blocks = tl.cdiv(width, COLUMNS)
    row = tl.program_id(0) // blocks * ROWS + tl.arange(0, ROWS)
    column = tl.program_id(0) % blocks * COLUMNS + tl.arange(0, COLUMNS)
    valid = (row < rows)[:, None] & (column < width)[None, :]
    place = _window(row, side).to(tl.int64)[:, None] * width + column[None, :]
    centre, _, scale, offset = _vectors(mean, inverse, weight, bias, column, width, channels)
    value0, value1, value2, value3 = _pixels(x + place, width, side, valid, centre)
    value = _first_maximum(value0, value1, value2, value3, scale) * scale + offset
    value = tl.where(value < 0.0, 0.0, value)
    tl.store(y + row.to(tl.int64)[:, None] * width + column[None, :], value.to(y.dtype.element_ty), mask=valid)


@triton.jit(do_not_specialize=["rows", "units", "channels", "chunk", "parts"], do_not_specialize_on_alignment=_VECTORS)
def slopes(
    x, dy, mean, inverse, weight, bias, sums, rows, units, channels, chunk, parts,
    UNIT: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr, STAGES: tl.constexpr,
):  # fmt: skip
    """Each chunk's sums of the gradient past the ReLU, and of that times the standardised x."""
    width = units * UNIT
    blocks = tl.cdiv(width, COLUMNS)
    part = tl.program_id(0) // blocks
    column = tl.program_id(0) % blocks * COLUMNS + tl.arange(0, COLUMNS)
    slot = tl.arange(0, ROWS)
    stop = tl.minimum((part + 1) * chunk, rows)
    centre, factor, scale, offset = _vectors(mean, inverse, weight, bias, column, width, channels)
    plain = tl.zeros((ROWS, COLUMNS), tl.float32)
    weighted = tl.zeros((ROWS, COLUMNS), tl.float32)
    for first in tl.range(part * chunk, stop, ROWS, num_stages=STAGES):
        row = first + slot
        valid = (row < stop)[:, None] & (column < width)[None, :]
        place = row.to(tl.int64)[:, None] * width + column[None, :]
        value = tl.load(x + place, mask=valid, other=0.0).to(tl.float32) - centre
        slope = tl.load(dy + place, mask=valid, other=0.0).to(tl.float32)
        slope = tl.where(value * scale + offset > 0.0, slope, 0.0)
        plain += slope
        weighted += slope * value
    place = part * width + column
    tl.store(sums + place, tl.sum(plain, 0), mask=column < width)
    weighted = tl.sum(weighted * factor, 0)
    tl.store(sums + parts * width + place, weighted, mask=column < width)


@triton.jit(
    do_not_specialize=["rows", "units", "channels", "side", "chunk", "parts"], do_not_specialize_on_alignment=_VECTORS
)
def slopes_pooled(
    x, dy, mean, inverse, weight, bias, sums, rows, units, channels, side, chunk, parts,
    UNIT: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr, STAGES: tl.constexpr,
):  # fmt: skip
    """`slopes` where each window's gradient goes to its first maximum; `rows` and `chunk` count windows."""
    width = units * UNIT
    blocks = tl.cdiv(width, COLUMNS)
    part = tl.program_id(0) // blocks
    column = tl.program_id(0) % blocks * COLUMNS + tl.arange(0, COLUMNS)
    slot = tl.arange(0, ROWS)
    stop = tl.minimum((part + 1) * chunk, rows)
    centre, factor, scale, offset = _vectors(mean, inverse, weight, bias, column, width, channels)
    plain = tl.zeros((ROWS, COLUMNS), tl.float32)
    weighted = tl.zeros((ROWS, COLUMNS), tl.float32)
    for first in tl.range(part * chunk, stop, ROWS, num_stages=STAGES):
        row = first + slot
        valid = (row < stop)[:, None] & (column < width)[None, :]
        place = _window(row, side).to(tl.int64)[:, None] * width + column[None, :]
        value0, value1, value2, value3 = _pixels(x + place, width, side, valid, centre)
        slope = tl.load(dy + row.to(tl.int64)[:, None] * width + column[None, :], mask=valid, other=0.0).to(tl.float32)
        chosen = _first_maximum(value0, value1, value2, value3, scale)
        slope = tl.where(chosen * scale + offset > 0.0, slope, 0.0)
        plain += slope
        weighted += slope * chosen
    place = part * width + column
    tl.store(sums + place, tl.sum(plain, 0), mask=column < width)
    weighted = tl.sum(weighted * factor, 0)
    tl.store(sums + parts * width + place, weighted, mask=column < width)


@triton.jit(do_not_specialize=["width", "parts"])
def sum_slopes(sums, slopes, width, parts, PARTS: tl.constexpr, COLUMNS: tl.constexpr):
    """Add the chunks' sums up: gradients of bias and weight; a third row of zeros is the gradient of `shift`."""
    column = tl.program_id(0) * COLUMNS + tl.arange(0, COLUMNS)
    part = tl.arange(0, PARTS)
    valid = (part < parts)[:, None] & (column < width)[None, :]
    place = part[:, None] * width + column[None, :]
    plain = tl.sum(tl.load(sums + place, mask=valid, other=0.0), 0)
    weighted = tl.sum(tl.load(sums + parts * width + place, mask=valid, other=0.0), 0)
    tl.store(slopes + column, plain, mask=column < width)
    tl.store(slopes + width + column, weighted, mask=column < width)
    tl.store(slopes + 2 * width + column, tl.zeros((COLUMNS,), tl.float32), mask=column < width)


@triton.jit(do_not_specialize=["rows", "units", "channels"], do_not_specialize_on_alignment=_VECTORS)
def back(
    x, dy, dx, mean, inverse, weight, bias, slopes, rows, units, channels,
    UNIT: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr,
):  # fmt: skip
    """Write the gradient of x."""
    width = units * UNIT
    blocks = tl.cdiv(width, COLUMNS)
    row = tl.program_id(0) // blocks * ROWS + tl.arange(0, ROWS)
    column = tl.program_id(0) % blocks * COLUMNS + tl.arange(0, COLUMNS)
    valid = (row < rows)[:, None] & (column < width)[None, :]
    place = row.to(tl.int64)[:, None] * width + column[None, :]
    centre, factor, scale, offset = _vectors(mean, inverse, weight, bias, column, width, channels)
    plain = tl.load(slopes + column, mask=column < width, other=0.0)[None, :] / rows
    weighted = tl.load(slopes + width + column, mask=column < width, other=0.0)[None, :] * factor / rows
    value = tl.load(x + place, mask=valid, other=0.0).to(tl.float32) - centre
    slope = tl.load(dy + place, mask=valid, other=0.0).to(tl.float32)
    slope = tl.where(value * scale + offset > 0.0, slope, 0.0)
    slope = (slope - plain - value * weighted) * scale
    tl.store(dx + place, slope.to(dx.dtype.element_ty), mask=valid)


@triton.jit(do_not_specialize=["rows", "units", "channels", "side"], do_not_specialize_on_alignment=_VECTORS)
def back_pooled(
    x, dy, dx, mean, inverse, weight, bias, slopes, rows, units, channels, side,
    UNIT: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr,
):  # fmt: skip
    """Write the gradient of x where windows were pooled; `rows` counts windows."""
    width = units * UNIT
    blocks = tl.cdiv(width, COLUMNS)
    row = tl.program_id(0) // blocks * ROWS + tl.arange(0, ROWS)
    column = tl.program_id(0) % blocks * COLUMNS + tl.arange(0, COLUMNS)
    valid = (row < rows)[:, None] & (column < width)[None, :]
    place = _window(row, side).to(tl.int64)[:, None] * width + column[None, :]
    centre, factor, scale, offset = _vectors(mean, inverse, weight, bias, column, width, channels)
    pixels = 4.0 * rows
    plain = tl.load(slopes + column, mask=column < width, other=0.0)[None, :] / pixels
    weighted = tl.load(slopes + width + column, mask=column < width, other=0.0)[None, :] * factor / pixels
    value0, value1, value2, value3 = _pixels(x + place, width, side, valid, centre)
    slope = tl.load(dy + row.to(tl.int64)[:, None] * width + column[None, :], mask=valid, other=0.0).to(tl.float32)
    chosen = _first_maximum(value0, value1, value2, value3, scale)
    slope = tl.where(chosen * scale + offset > 0.0, slope, 0.0)
    to0 = tl.where(value0 == chosen, slope, 0.0)
    slope -= to0  # the slope, or nothing once a pixel has taken it
    to1 = tl.where(value1 == chosen, slope, 0.0)
    slope -= to1
    to2 = tl.where(value2 == chosen, slope, 0.0)
    to3 = slope - to2
    window, below = dx + place, dx + place + side * width
    tl.store(window, ((to0 - plain - value0 * weighted) * scale).to(dx.dtype.element_ty), mask=valid)
    tl.store(window + width, ((to1 - plain - value1 * weighted) * scale).to(dx.dtype.element_ty), mask=valid)
    tl.store(below, ((to2 - plain - value2 * weighted) * scale).to(dx.dtype.element_ty), mask=valid)
    tl.store(below + width, ((to3 - plain - value3 * weighted) * scale).to(dx.dtype.element_ty), mask=valid)


@triton.jit(do_not_specialize=["rows", "units", "new_rows", "new_units"])
def recast(
    source, target, rows, units, new_rows, new_units, UNIT: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr
):
    """Copy a matrix into one of another size and dtype, cut or padded with zeros."""
    width, new_width = units * UNIT, new_units * UNIT
    blocks = tl.cdiv(new_width, COLUMNS)
    row = (tl.program_id(0) // blocks * ROWS + tl.arange(0, ROWS)).to(tl.int64)[:, None]
    column = (tl.program_id(0) % blocks * COLUMNS + tl.arange(0, COLUMNS))[None, :]
    value = tl.load(source + row * width + column, mask=(row < rows) & (column < width), other=0.0)
    valid = (row < new_rows) & (column < new_width)
    tl.store(target + row * new_width + column, value.to(target.dtype.element_ty), mask=valid)
