import gzip
from pathlib import Path

import pytest

from candidly.data import REGISTRY
from candidly.data.published.catalogue import File
from candidly.data.published.checksums import check, difference, digest
from candidly.data.readers.compressed import gunzip
from tests.data.made import change, sha256


def test_digests_of_a_known_content():
    assert digest(b"hello\n", "git-blob") == "git-blob:ce013625030ba8dba906f756967f9e9ca394464a"
    assert digest(b"", "sha256") == "sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"


@pytest.mark.parametrize(
    ("size", "known", "wrong"),
    [
        (None, None, None),
        (6, "git-blob:ce013625030ba8dba906f756967f9e9ca394464a", None),
        (7, None, "6 bytes instead of 7"),
        (None, "git-blob:00", "git-blob:ce013625030ba8dba906f756967f9e9ca394464a instead of git-blob:00"),
        (None, "sha256:00", f"{sha256(b'hello' + bytes([10]))} instead of sha256:00"),
    ],
)
def test_difference(size, known, wrong):
    assert difference(b"hello\n", size, known) == wrong


def test_check_says_what_to_do():
    entry = REGISTRY["lost"]
    with pytest.raises(ValueError, match=r"lost.mat is not the published file") as caught:
        check(b"else", entry.files[0], Path("/data/lost.mat"), entry)
    for part in ("/data/lost.mat", "4 bytes instead of 936096", "get it again", entry.page, "download=True"):
        assert part in str(caught.value)


def test_check_knows_other_datasets(monkeypatch):
    change(monkeypatch, "mnist", files=(File("train-images-idx3-ubyte", 6, sha256(b"digits")),))
    file = File("train-images-idx3-ubyte", 6)
    check(b"kanjis", file, Path("train-images-idx3-ubyte"), REGISTRY["kmnist"])
    with pytest.raises(ValueError, match="train-images-idx3-ubyte belongs to mnist, not to kmnist; keep each"):
        check(b"digits", file, Path("train-images-idx3-ubyte"), REGISTRY["kmnist"])


def test_gunzip_stops_at_the_limit(tmp_path):
    path = tmp_path / "zeros.gz"
    path.write_bytes(gzip.compress(bytes(10**7)))
    assert gunzip(path, 100) == bytes(100)
    assert len(gunzip(path, 10**8)) == 10**7


@pytest.mark.parametrize("damage", [lambda raw: raw[:-5], lambda raw: b"no gzip", lambda raw: raw[:-8] + bytes(8)])
def test_gunzip_rejects_damaged_files(tmp_path, damage):
    path = tmp_path / "file.gz"
    path.write_bytes(damage(gzip.compress(b"content" * 100)))
    with pytest.raises(ValueError, match=r"file.gz is not a readable gzip file"):
        gunzip(path, 1000)
