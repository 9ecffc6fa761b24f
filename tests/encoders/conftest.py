"""Packages of encoders may be missing, or not work beside the build of torch: tests of these encoders are skipped."""

import importlib

import numpy as np
import pytest


@pytest.fixture
def package():
    """Return a function that imports a package, or skips the test with the reason."""

    def need(name):
        try:
            return importlib.import_module(name)
        except (ImportError, RuntimeError) as error:
            return pytest.skip(f"needs {name}, which cannot be imported: {str(error).splitlines()[0]}")

    return need


@pytest.fixture
def pictures():
    """Return six images of noise, each tinted in one of three colours, (6, 20, 30, 3)."""
    values = np.random.default_rng(0).integers(0, 100, (6, 20, 30, 3))
    for i in range(6):
        values[i, ..., i % 3] += 150
    return values.astype(np.uint8)


@pytest.fixture
def photos(pictures, tmp_path):
    """Return a folder with these images: three in it, three in a folder in it, and other files."""
    image = pytest.importorskip("PIL.Image", reason="needs pillow")
    folder = tmp_path / "photos"
    (folder / "more").mkdir(parents=True)
    for i, picture in enumerate(pictures):
        image.fromarray(picture).save(folder / ("more" if i % 2 else "") / f"{i}.png")
    (folder / "more" / "notes.txt").write_text("no image")
    (folder / ".hidden.png").write_text("no image")
    return folder
