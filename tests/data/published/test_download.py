"""Downloads from a server on this machine; nothing leaves it."""

import functools
import gc
import http.server
import io
import os
import socket
import sys
import tarfile
import threading
import time
import warnings
from dataclasses import replace

import numpy as np
import pytest
import scipy.io

from candidly.data import REGISTRY, LicenceNotice, load
from candidly.data.published import download
from candidly.data.published.catalogue import Download, File
from tests.data import made


class Handler(http.server.SimpleHTTPRequestHandler):
    """Serves a folder, but of a file `short-…` the first half only."""

    def log_message(self, *arguments):
        pass

    def copyfile(self, source, outputfile):
        content = source.read()
        outputfile.write(content[: len(content) // 2] if "/short-" in self.path else content)


@pytest.fixture
def server(tmp_path, monkeypatch):
    """A folder and the address under which it is served."""
    monkeypatch.setenv("NO_PROXY", "*")
    folder = tmp_path / "served"
    folder.mkdir()
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Handler, directory=folder)) as running:
        thread = threading.Thread(target=running.serve_forever, args=(0.01,))
        thread.start()
        yield folder, f"http://127.0.0.1:{running.server_port}"
        running.shutdown()
        thread.join()


@pytest.fixture(autouse=True)
def no_sockets_left():
    """Close the connections that pooch leaves open when a download fails."""
    gc.freeze()  # older objects need not be searched: there are many
    yield
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)
        gc.collect()
    gc.unfreeze()


def serve_lost(server, monkeypatch, name="lost.mat", digest=made.sha256):
    """Publish a small `lost.mat`; return its content."""
    folder, address = server
    scipy.io.savemat(folder / name, made.fields_of(made.toy()))
    content = (folder / name).read_bytes()
    known = len(content), digest(content)
    made.change(
        monkeypatch, "lost", files=(File("lost.mat", *known),), downloads=(Download(f"{address}/{name}", *known),)
    )
    return content


def left_behind(*folders):
    return [path for folder in folders for path in folder.rglob("*") if not path.is_dir() or path.name.startswith(".")]


@pytest.mark.parametrize("digest", [made.sha256, made.git_blob])
@pytest.mark.parametrize("with_root", [True, False])
def test_downloads_once(server, places, monkeypatch, digest, with_root):
    content = serve_lost(server, monkeypatch, digest=digest)
    root = places[0] if with_root else None
    with pytest.warns(LicenceNotice, match="lost: licence: .*MIT.*academic use only; please cite T. Cour"):
        dataset = load("lost", root=root, download=True)
    np.testing.assert_array_equal(dataset.S, made.toy().S)
    path = (places[0] if with_root else places[2]) / "realworld" / "lost.mat"
    assert path.read_bytes() == content
    assert path.stat().st_mode & 0o044 == 0o044, "others may read it"
    assert left_behind(*places) == [path]
    (server[0] / "lost.mat").unlink()
    load("lost", root=root, download=True)
    load("lost", root=root)


def test_downloads_only_when_asked(server, places, monkeypatch):
    serve_lost(server, monkeypatch)
    with pytest.raises(FileNotFoundError, match="download=True"):
        load("lost", root=places[0])
    assert not places[0].exists()


def test_shows_progress(server, places, monkeypatch, capsys):
    serve_lost(server, monkeypatch)
    with pytest.warns(LicenceNotice):
        load("lost", root=places[0], download=True)
    assert "100%" in capsys.readouterr().err


@pytest.mark.filterwarnings("ignore::candidly.data.LicenceNotice")
@pytest.mark.parametrize(
    ("known", "message"),
    [
        ({"digest": made.sha256(b"other")}, "is not the published file.*sha256"),
        ({"digest": made.git_blob(b"other")}, "is not the published file.*git-blob:.* instead of git-blob:"),
        ({"size": 7}, "is not the published file.*more than 7 bytes"),
    ],
)
def test_rejects_another_content(server, places, monkeypatch, known, message):
    serve_lost(server, monkeypatch)
    made.change(monkeypatch, "lost", downloads=(replace(REGISTRY["lost"].downloads[0], **known),))
    with pytest.raises(ValueError, match=message) as caught:
        load("lost", root=places[0], download=True)
    for part in ("lost.mat", f"{server[1]}/lost.mat", str(places[0] / "realworld"), "by hand"):
        assert part in str(caught.value)
    assert not left_behind(places[0])


@pytest.mark.filterwarnings("ignore::candidly.data.LicenceNotice")
def test_rejects_a_truncated_file(server, places, monkeypatch):
    serve_lost(server, monkeypatch, name="short-lost.mat")
    with pytest.raises(FileNotFoundError, match=r"short-lost.mat could not be downloaded") as caught:
        load("lost", root=places[0], download=True)
    for part in (f"{server[1]}/short-lost.mat", str(places[0] / "realworld"), "try again"):
        assert part in str(caught.value)
    assert not left_behind(places[0])


@pytest.mark.filterwarnings("ignore::candidly.data.LicenceNotice")
@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("{address}/nothing.mat", "404"),
        ("http://127.0.0.1:9/lost.mat", "refused"),
    ],
)
def test_says_that_it_cannot_be_reached(server, places, monkeypatch, url, message):
    serve_lost(server, monkeypatch)
    url = url.format(address=server[1])
    made.change(monkeypatch, "lost", downloads=(replace(REGISTRY["lost"].downloads[0], url=url),))
    with pytest.raises(FileNotFoundError, match=f"could not be downloaded.*{message}") as caught:
        load("lost", root=places[0], download=True)
    for part in (url, str(places[0] / "realworld"), "check the connection"):
        assert part in str(caught.value)
    assert not left_behind(places[0])


@pytest.mark.filterwarnings("ignore::candidly.data.LicenceNotice")
def test_says_that_there_is_no_network(server, places, monkeypatch):
    serve_lost(server, monkeypatch)

    def fail(*arguments, **options):
        raise socket.gaierror(-3, "Temporary failure in name resolution")

    monkeypatch.setattr(socket, "getaddrinfo", fail)
    with pytest.raises(FileNotFoundError, match=r"could not be downloaded.*check the connection and try again"):
        load("lost", root=places[0], download=True)
    assert not left_behind(places[0])


@pytest.mark.filterwarnings("ignore::candidly.data.LicenceNotice")
def test_needs_pooch(server, places, monkeypatch):
    serve_lost(server, monkeypatch)
    monkeypatch.setitem(sys.modules, "pooch", None)
    with pytest.raises(ModuleNotFoundError, match=r"pip install candidly\[data\]"):
        load("lost", root=places[0], download=True)


def test_downloads_what_is_missing(server, places, monkeypatch):
    made.shrink(monkeypatch, "mnist", 3, 1)
    folder, address = server
    pictures, labels = made.images(4, 28, 28), np.arange(4, dtype=np.uint8)
    made.write_idx_dataset(folder, (pictures[:3], labels[:3]), (pictures[3:], labels[3:]), ".gz")
    made.write_idx_dataset(places[0] / "mnist", (pictures[:3], labels[:3]), (pictures[3:], labels[3:]), ".gz")
    downloads = []
    for known in REGISTRY["mnist"].downloads:
        content = (folder / known.name).read_bytes()
        downloads.append(Download(f"{address}/{known.name}", len(content), made.sha256(content)))
    made.change(monkeypatch, "mnist", downloads=tuple(downloads))
    (places[0] / "mnist" / "t10k-labels-idx1-ubyte.gz").unlink()
    (folder / "train-images-idx3-ubyte.gz").unlink()
    with pytest.warns(LicenceNotice, match="mnist"):
        dataset = load("mnist", root=places[0], download=True)
    assert dataset.y.tolist() == [0, 1, 2, 3]


def archive(path, members):
    """Write an archive; a member is bytes, or the target of a link."""
    with tarfile.open(path, "w:gz") as tar:
        for name, content in members.items():
            info = tarfile.TarInfo(name)
            if isinstance(content, str):
                info.type, info.linkname = tarfile.SYMTYPE, content
                tar.addfile(info)
            else:
                info.size = len(content)
                tar.addfile(info, io.BytesIO(content))


@pytest.fixture
def small_cifar100(server, monkeypatch):
    """CIFAR-100 with a row per class to train and two to test; a function serves it in an archive."""
    made.shrink(monkeypatch, "cifar100", 100, 2)
    pictures, labels = made.images(102, 3, 32, 32), np.arange(102) % 100
    contents = {
        "cifar-100-binary/train.bin": made.cifar(pictures[:100], labels[:100] // 5, labels[:100]),
        "cifar-100-binary/test.bin": made.cifar(pictures[100:], labels[100:] // 5, labels[100:]),
    }
    files = tuple(File(name.rpartition("/")[2], len(content)) for name, content in contents.items())

    def serve(**others):
        folder, address = server
        archive(folder / "cifar.tar.gz", contents | others)
        content = (folder / "cifar.tar.gz").read_bytes()
        offered = Download(f"{address}/cifar.tar.gz", len(content), made.sha256(content), tuple(contents))
        made.change(monkeypatch, "cifar100", files=files, downloads=(offered,))

    return serve


def test_takes_only_the_wanted_members(small_cifar100, places):
    small_cifar100(**{"../evil": b"evil", "/tmp/evil-member": b"evil", "cifar-100-binary/fine.txt": b"apple"})
    with pytest.warns(LicenceNotice, match="cifar100"):
        dataset = load("cifar100", root=places[0], download=True)
    assert dataset.y.tolist() == [*range(100), 0, 1]
    folder = places[0] / "cifar100"
    assert sorted(left_behind(places[0])) == [folder / "test.bin", folder / "train.bin"]


@pytest.mark.filterwarnings("ignore::candidly.data.LicenceNotice")
@pytest.mark.parametrize("content", [bytes(3074), "/etc/passwd", "train.bin"])
def test_rejects_other_members(small_cifar100, places, content):
    small_cifar100(**{"cifar-100-binary/test.bin": content})
    with pytest.raises(ValueError, match=r"cifar.tar.gz from http.* is not the expected archive .*test.bin") as caught:
        load("cifar100", root=places[0], download=True)
    assert "6148 bytes" in str(caught.value)
    assert not left_behind(places[0])


@pytest.mark.filterwarnings("ignore::candidly.data.LicenceNotice")
def test_rejects_an_archive_that_is_none(small_cifar100, server, places, monkeypatch):
    small_cifar100()
    content = (server[0] / "cifar.tar.gz").read_bytes()[:-100]
    (server[0] / "cifar.tar.gz").write_bytes(content)
    offered = replace(REGISTRY["cifar100"].downloads[0], size=len(content), digest=made.sha256(content))
    made.change(monkeypatch, "cifar100", downloads=(offered,))
    with pytest.raises(ValueError, match="is not the expected archive"):
        load("cifar100", root=places[0], download=True)
    assert not left_behind(places[0])


@pytest.mark.filterwarnings("ignore::candidly.data.LicenceNotice")
def test_says_that_the_folder_cannot_be_written(server, places, monkeypatch):
    serve_lost(server, monkeypatch)
    for place in (places[0], places[0] / "realworld"):
        place.parent.mkdir(exist_ok=True)
        place.write_text("a file")
        with pytest.raises(OSError, match="realworld cannot be written to") as caught:
            load("lost", root=places[0], download=True)
        for part in (str(places[0] / "realworld"), "root=", "XDG_CACHE_HOME"):
            assert part in str(caught.value)
        place.unlink()
    load("lost", root=places[0], download=True)


@pytest.mark.filterwarnings("ignore::candidly.data.LicenceNotice")
def test_does_not_download_what_is_there_plain(server, places, monkeypatch):
    made.shrink(monkeypatch, "mnist", 3, 1)
    folder, address = server
    pictures, labels = made.images(4, 28, 28), np.arange(4, dtype=np.uint8)
    parts = (pictures[:3], labels[:3]), (pictures[3:], labels[3:])
    made.write_idx_dataset(folder, *parts, ".gz")
    made.write_idx_dataset(places[0] / "mnist", *parts)
    downloads = (replace(known, url=f"{address}/{known.name}") for known in REGISTRY["mnist"].downloads)
    made.change(monkeypatch, "mnist", downloads=tuple(downloads))
    (places[0] / "mnist" / "t10k-labels-idx1-ubyte").unlink()
    (folder / "train-images-idx3-ubyte.gz").unlink()
    assert load("mnist", root=places[0], download=True).y.tolist() == [0, 1, 2, 3]
    assert len(left_behind(places[0])) == 4


@pytest.mark.filterwarnings("ignore::candidly.data.LicenceNotice")
def test_removes_what_was_left_long_ago(server, places, monkeypatch):
    serve_lost(server, monkeypatch)
    old, new, other = (places[0] / name for name in (".lost-old", ".lost-new", ".soccer-old"))
    for folder in (old, new, other):
        folder.mkdir(parents=True)
        (folder / "part").write_text("half a file")
    for folder in (old, other):
        os.utime(folder, (time.time() - 90_000,) * 2)
    load("lost", root=places[0], download=True)
    assert [folder.exists() for folder in (old, new, other)] == [False, True, True]


@pytest.mark.filterwarnings("ignore::candidly.data.LicenceNotice")
@pytest.mark.parametrize("known", [True, False])
def test_stops_when_too_much_comes(server, places, monkeypatch, known):
    serve_lost(server, monkeypatch)
    if not known:
        entry = REGISTRY["lost"]
        made.change(monkeypatch, "lost", downloads=tuple(replace(one, size=None) for one in entry.downloads))
        monkeypatch.setenv("CANDIDLY_MAX_BYTES", "50000")
    (server[0] / "lost.mat").write_bytes(bytes(10**7))
    received, write = [], download._Limited.write
    monkeypatch.setattr(
        download._Limited, "write", lambda self, content: received.append(len(content)) or write(self, content)
    )
    with pytest.raises(ValueError, match=r"is not the published file: it has more than \d+ bytes"):
        load("lost", root=places[0], download=True)
    assert sum(received) < 10**5
    assert not left_behind(places[0])


def test_a_nested_download_points_at_the_caller(server, places, monkeypatch):
    made.change(monkeypatch, "cifar10", downloads=(Download("http://127.0.0.1:9/cifar.tar.gz", 1, None),))
    (places[0] / "cifar10n").mkdir(parents=True)
    (places[0] / "cifar10n" / "cifar10n.npz").write_bytes(b"")
    with pytest.warns(LicenceNotice) as caught, pytest.raises(FileNotFoundError, match="could not be downloaded"):
        load("cifar10n", root=places[0], download=True)
    assert [str(warning.message).split(":")[0] for warning in caught] == ["cifar10n", "cifar10"]
    assert {warning.filename for warning in caught} == {__file__}
