import re

import pytest

from candidly.data import REGISTRY

REAL_WORLD = {"bird-song", "lost", "mir-flickr", "msrc-v2", "soccer", "yahoo-news"}
IMAGES = {"mnist", "fmnist", "kmnist", "svhn", "cifar10", "cifar100"}
entries = pytest.mark.parametrize("entry", REGISTRY.values(), ids=list(REGISTRY))


def test_the_papers_datasets_are_there():
    assert REGISTRY.keys() == REAL_WORLD | IMAGES | {"digits", "cifar10n"}


@entries
def test_facts_are_complete(entry):
    assert REGISTRY[entry.name] is entry
    assert re.fullmatch(r"[a-z0-9._+-]+", entry.name)
    assert entry.licence
    assert re.search(r"\d{4}$", entry.citation), "a citation ends with its year"
    assert entry.page.startswith("http")
    assert len(entry.classes) in (0, entry.num_classes)
    assert len(set(entry.classes)) == len(entry.classes)
    assert entry.num_train is None or 0 < entry.num_train < entry.shape[0]
    assert bool(entry.files) == bool(entry.folders)


@entries
def test_digests_look_like_digests(entry):
    for known in (*entry.files, *entry.downloads):
        assert known.digest is None or re.fullmatch(r"sha256:[0-9a-f]{64}|git-blob:[0-9a-f]{40}", known.digest)


@entries
def test_downloads_give_the_files(entry):
    if not entry.downloads:
        assert entry.name in ("digits", "cifar10n")
        assert bool(entry.manual) == (entry.name == "cifar10n")
        return
    given = [
        name for download in entry.downloads for name in [m.split("/")[-1] for m in download.members] or [download.name]
    ]
    assert len(given) == len(entry.files)
    for file, name in zip(entry.files, given, strict=True):
        assert name in (file.name, *file.others)
    assert all(download.digest for download in entry.downloads), "nothing comes unchecked"


def test_sizes_follow_from_shapes():
    for name in ("mnist", "fmnist", "kmnist"):
        sizes = [file.size for file in REGISTRY[name].files]
        assert sizes == [16 + 60_000 * 784, 8 + 60_000, 16 + 10_000 * 784, 8 + 10_000]
    assert [file.size for file in REGISTRY["cifar10"].files] == [10_000 * 3073] * 6
    assert [file.size for file in REGISTRY["cifar100"].files] == [50_000 * 3074, 10_000 * 3074]


def test_pages_lead_to_what_is_downloaded():
    assert "yann.lecun.com" not in REGISTRY["mnist"].page, "nothing is downloaded from there"


def test_terms_show_both_sides():
    assert "MIT" in REGISTRY["lost"].terms
    assert "academic use only" in REGISTRY["lost"].terms
    assert "Learning from Partial Labels" in REGISTRY["lost"].terms
    assert "CC BY-NC 4.0" in REGISTRY["cifar10n"].terms
