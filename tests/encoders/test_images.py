"""Reading image files, and preparing images as encoders expect them."""

import struct
import zlib

import numpy as np
import pytest
import torch
from PIL import Image
from torch.nn import functional

from candidly.encoders.images import Preparation, read_image, to_tensor, to_tensors


def test_an_image_file_is_read_upright_in_rgb(tmp_path):
    pixels = np.arange(2 * 3 * 3, dtype=np.uint8).reshape(2, 3, 3)
    file = tmp_path / "turned.png"
    exif = Image.Exif()
    exif[0x0112] = 6  # turn it by 90 degrees to show it
    Image.fromarray(pixels).save(file, exif=exif)
    assert np.array_equal(read_image(file).permute(1, 2, 0), np.rot90(pixels, -1))


@pytest.mark.parametrize("mode", ["1", "L", "P", "LA", "RGBA", "CMYK"])
def test_all_usual_modes_are_read(mode, tmp_path):
    file = tmp_path / ("image.tiff" if mode == "CMYK" else "image.png")
    Image.new("RGB", (4, 3), "red").convert(mode).save(file)
    found = read_image(file)
    assert (found.shape, found.dtype) == ((3, 3, 4), torch.uint8)


def test_deep_pixels_are_refused(tmp_path):
    file = tmp_path / "deep.png"
    Image.fromarray(np.full((2, 2), 40_000, np.uint16)).save(file)
    with pytest.raises(ValueError, match=r"deep\.png has pixels of more than 8 bits .*; convert it"):
        read_image(file)
    with Image.open(file) as opened, pytest.raises(ValueError, match="an image of X has pixels of more than 8 bits"):
        to_tensor(opened)


def test_transparent_parts_are_white(tmp_path):
    pixels = np.zeros((1, 2, 4), np.uint8)
    pixels[0, :] = [[200, 10, 10, 0], [0, 0, 200, 255]]  # invisible, and opaque
    Image.fromarray(pixels).save(tmp_path / "cut-out.png")
    assert read_image(tmp_path / "cut-out.png").flatten(1).T.tolist() == [[255, 255, 255], [0, 0, 200]]


@pytest.mark.parametrize("name", ["turned.jpg", "cut-out.png", "grey.png"])
def test_an_image_of_pil_is_read_as_its_file_is(name, tmp_path):
    pixels = np.random.default_rng(0).integers(0, 256, (8, 12, 4), dtype=np.uint8)
    exif = Image.Exif()
    exif[0x0112] = 6
    image = Image.fromarray(pixels)
    image.convert({"turned.jpg": "RGB", "cut-out.png": "RGBA", "grey.png": "L"}[name]).save(tmp_path / name, exif=exif)
    with Image.open(tmp_path / name) as opened:
        assert torch.equal(to_tensor(opened), read_image(tmp_path / name))


def test_a_large_jpeg_is_decoded_at_a_fraction_of_its_size(tmp_path):
    rough = Image.fromarray(np.random.default_rng(0).integers(0, 256, (20, 30, 3), dtype=np.uint8))
    rough.resize((1200, 800), Image.Resampling.BICUBIC).save(tmp_path / "photo.jpg", quality=95)
    preparation = Preparation(50, 50)
    assert preparation.side == 100
    whole, small = read_image(tmp_path / "photo.jpg"), read_image(tmp_path / "photo.jpg", preparation.side)
    assert (whole.shape, small.shape) == ((3, 800, 1200), (3, 100, 150))
    difference = preparation.resize(small[None]).float() - preparation.resize(whole[None]).float()
    assert difference.abs().mean() < 1
    assert read_image(tmp_path / "photo.jpg", 500).shape == (3, 800, 1200)


@pytest.mark.parametrize("content", [b"", b"GIF89a", b"\x89PNG\r\n\x1a\n", b"not an image"])
def test_other_files_are_refused_by_name(content, tmp_path):
    file = tmp_path / "broken.jpg"
    file.write_bytes(content)
    with pytest.raises(ValueError, match=r"broken\.jpg .*; repair or remove it"):
        read_image(file)


@pytest.mark.parametrize("suffix", ["jpg", "png", "gif", "webp"])
def test_truncated_files_are_refused_by_name(suffix, tmp_path):
    file = tmp_path / f"cut.{suffix}"
    Image.fromarray(np.random.default_rng(0).integers(0, 256, (64, 64, 3), dtype=np.uint8)).save(file)
    file.write_bytes(file.read_bytes()[:-600])
    with pytest.raises(ValueError, match=rf"cut\.{suffix} .*; repair or remove it"):
        read_image(file)


@pytest.mark.parametrize("suffix", ["ppm", "tga", "bmp", "tiff", "jp2", "png", "gif", "webp", "jpg"])
def test_damaged_files_are_refused_by_name(suffix, tmp_path):
    """Whatever their reader raises; a file that can be read all the same is an image."""
    generator = np.random.default_rng(0)
    file = tmp_path / f"spoilt.{suffix}"
    Image.fromarray(generator.integers(0, 256, (16, 16, 3), dtype=np.uint8)).save(file)
    content = file.read_bytes()
    refused = []
    for _ in range(60):
        spoilt = bytearray(content[: generator.integers(3, len(content))])
        spoilt[generator.integers(3, len(spoilt)) if len(spoilt) > 3 else 0] ^= int(generator.integers(1, 256))
        file.write_bytes(spoilt)
        try:
            read_image(file)
        except ValueError as error:
            refused.append(str(error))
    assert refused
    assert all("spoilt" in message for message in refused)


def test_a_shortage_of_memory_is_not_a_damaged_file(tmp_path, monkeypatch):
    def convert(*_):
        raise MemoryError

    Image.new("RGB", (4, 4)).save(tmp_path / "a.png")
    monkeypatch.setattr(Image.Image, "convert", convert)
    with pytest.raises(MemoryError):
        read_image(tmp_path / "a.png")


def test_names_that_no_file_can_have(tmp_path):
    with pytest.raises(FileNotFoundError, match="xxx… does not exist"):
        read_image(tmp_path / ("x" * 5000))


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"none\.png does not exist"):
        read_image(tmp_path / "none.png")


@pytest.mark.filterwarnings("ignore:Image size")
def test_a_small_file_cannot_fill_the_memory(tmp_path):
    def chunk(name, data):
        return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))

    file = tmp_path / "bomb.png"
    header = struct.pack(">IIBBBBB", 100_000, 100_000, 8, 2, 0, 0, 0)
    file.write_bytes(b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", b"") + chunk(b"IEND", b""))
    with pytest.raises(ValueError, match=r"bomb\.png"):
        read_image(file)


def test_a_small_limit_holds_for_images(tmp_path, monkeypatch):
    file = tmp_path / "image.png"
    Image.new("RGB", (100, 100)).save(file)
    monkeypatch.setenv("CANDIDLY_MAX_BYTES", "1000")
    with pytest.raises(ValueError, match=r"image\.png takes at least .* of memory, more than the limit"):
        read_image(file)


def test_channels_may_be_first_or_last(pictures):
    last = to_tensors(pictures)
    assert torch.equal(last, to_tensors(pictures.transpose(0, 3, 1, 2)))
    grey = to_tensors(pictures[..., :1])
    assert torch.equal(grey, last[:, :1].expand(-1, 3, -1, -1))
    assert torch.equal(to_tensor(pictures[0]), last[0])
    assert torch.equal(to_tensor(Image.fromarray(pictures[0])), last[0])


@pytest.mark.parametrize(
    ("images", "message"),
    [
        (np.zeros((2, 4, 4, 3)), r"float64; pass bytes"),
        (np.zeros((2, 4, 4, 2), np.uint8), r"shape \(4, 4, 2\)"),
        (np.zeros((2, 0, 4, 3), np.uint8), "no pixels"),
    ],
)
def test_other_arrays_are_refused(images, message):
    with pytest.raises(ValueError, match=message):
        to_tensors(images)


def test_resizing_is_that_of_pillow(pictures):
    prepared = Preparation(12, 12, crop=None).resize(to_tensors(pictures))
    for found, picture in zip(prepared, pictures, strict=True):
        wanted = np.asarray(Image.fromarray(picture).resize((12, 12), Image.Resampling.BICUBIC)).astype(int)
        assert np.abs(found.permute(1, 2, 0).numpy() - wanted).max() <= 1


def test_the_middle_is_cut_out_before_it_is_resized(pictures):
    images = to_tensors(pictures)  # 20 × 30
    middle = images[..., :, 5:25]
    assert torch.equal(Preparation(20, 20).resize(images), middle)
    half = Preparation(7, 7, crop=0.5, interpolation="bilinear").resize(images)
    wanted = functional.interpolate(images[..., 5:15, 10:20].float(), (7, 7), mode="bilinear", antialias=True)
    assert (half - wanted).abs().max() <= 1  # bytes are resized with weights of fewer bits


def test_a_long_strip_takes_no_more_memory():
    strip = torch.zeros(1, 3, 1, 5_000_000, dtype=torch.uint8)
    assert Preparation(224, 224).resize(strip).shape == (1, 3, 224, 224)  # resized first: 224 × 1.1e9 pixels


def test_pixels_are_standardised_by_channel():
    preparation = Preparation(1, 1, (0.5, 0.0, 1.0), (0.5, 1.0, 2.0))
    found = preparation.standardise(torch.full((1, 3, 1, 1), 255, dtype=torch.uint8))
    assert found.flatten().tolist() == [1.0, 1.0, 0.0]
