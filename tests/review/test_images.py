"""Images: only files that the table names, inside their folder, and only pixels."""

import os

import pytest

from candidly.review.images import LARGEST, Images

pytestmark = pytest.mark.skipif(os.name != "posix", reason="the system has other links and pipes")

PNG = b"\x89PNG\r\n\x1a\n" + bytes(20)
SVG = b'<svg xmlns="http://www.w3.org/2000/svg"><script>alert(1)</script></svg>'


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "images").mkdir()
    (tmp_path / "images" / "a.png").write_bytes(PNG)
    (tmp_path / "images" / "b.svg").write_bytes(SVG)
    (tmp_path / "images" / "c.png").write_bytes(SVG)
    (tmp_path / "secret.png").write_bytes(PNG)
    (tmp_path / "images-too").mkdir()
    (tmp_path / "images-too" / "d.png").write_bytes(PNG)
    os.symlink(tmp_path / "secret.png", tmp_path / "images" / "link.png")
    os.symlink(tmp_path / "images" / "a.png", tmp_path / "images" / "inside.png")
    os.symlink(tmp_path, tmp_path / "images" / "up")
    return tmp_path


@pytest.mark.parametrize("name", ["a.png", "./a.png", "inside.png", "../images/a.png"])
def test_images_inside_the_folder_are_read(folder, name):
    images = Images([name], folder / "images")
    assert images.has(0)
    assert images.read(0) == (PNG, "image/png")


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("../secret.png", "outside of the folder"),
        ("link.png", "outside of the folder"),
        ("up/secret.png", "outside of the folder"),
        ("../images-too/d.png", "outside of the folder"),
        ("/etc/passwd", "outside of the folder"),
        ("b.svg", "SVG is not shown"),
        ("c.png", "SVG is not shown"),  # the name says nothing
        ("none.png", "cannot be read"),
        (".", "cannot be read|not a regular file"),
        ("http://example.org/a.png", "cannot be read"),
        ("a.png\0", "no file name has"),
        ("", "no image"),
        (None, "no image"),
    ],
)
def test_other_files_are_refused(folder, name, reason):
    with pytest.raises(ValueError, match=reason):
        Images([name], folder / "images").read(0)


def test_a_pipe_does_not_block(folder):
    os.mkfifo(folder / "images" / "pipe.png")
    with pytest.raises(ValueError, match="not a regular file"):
        Images(["pipe.png"], folder / "images").read(0)


def test_a_huge_file_is_refused(folder):
    with (folder / "images" / "huge.png").open("wb") as file:
        file.truncate(LARGEST + 1)
    with pytest.raises(ValueError, match="at most"):
        Images(["huge.png"], folder / "images").read(0)


@pytest.mark.parametrize(
    ("start", "kind"),
    [
        (b"\xff\xd8\xff\xe0", "jpeg"),
        (b"GIF89a", "gif"),
        (b"RIFF\0\0\0\0WEBP", "webp"),
        (b"\0\0\0\x20ftypavif", "avif"),
        (b"BM", "bmp"),
    ],
)
def test_the_type_is_that_of_the_content(folder, start, kind):
    (folder / "images" / "x").write_bytes(start + bytes(30))
    assert Images(["x"], folder / "images").read(0)[1] == f"image/{kind}"
