"""The scikit-learn transformers: inputs, batches, components, broken images, parameters."""

import pickle

import numpy as np
import pytest
import torch
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.pipeline import make_pipeline

from candidly import PartialLabelClassifier
from candidly.encoders import ENCODERS, ImageEncoder, TextEncoder, networks
from candidly.encoders.images import Preparation
from candidly.encoders.networks import Network


class Means:
    """A stand-in for a network of images: the mean of each channel, and the number of rows of each batch."""

    def __init__(self, batch_size=None):
        self.batches = []
        preparation = Preparation(8, 8, (0.0,) * 3, (1 / 255,) * 3)
        self.network = Network(self.encode, "means 1", "ab" * 32, preparation, batch_size)

    def encode(self, images):
        self.batches.append(len(images))
        return torch.cat([images.mean((2, 3)), images.amax((2, 3))], 1)


@pytest.fixture
def means(monkeypatch):
    """Let every encoder of images be `Means`."""

    def use(batch_size=None):
        made = Means(batch_size)
        monkeypatch.setattr(networks, "load", lambda name, kind, device: made.network)
        return made

    return use


def paths_of(folder):
    return [str(folder / ("more" if i % 2 else "") / f"{i}.png") for i in range(6)]


def test_files_and_arrays_have_the_same_features(means, pictures, photos):
    means()
    found = ImageEncoder(device="cpu").fit_transform(pictures)
    assert found.shape == (6, 6)
    assert found.dtype == np.float32
    assert np.array_equal(ImageEncoder().fit(pictures).transform(paths_of(photos)), found)
    assert np.array_equal(ImageEncoder().transform(list(pictures)), found)
    assert (found[:, :3].argmax(1) == np.arange(6) % 3).all()


@pytest.mark.parametrize("kind", ["pandas", "polars", "pyarrow", "matrix", "series", "objects"])
def test_one_column_of_paths(kind, means, pictures, photos):
    means()
    paths = paths_of(photos)
    if kind == "pyarrow":
        pa = pytest.importorskip("pyarrow")
        X = pa.table({"path": paths})
    elif kind in ("pandas", "polars"):
        X = pytest.importorskip(kind).DataFrame({"path": paths})
    elif kind == "series":
        X = pytest.importorskip("pandas").Series(paths)
    else:
        X = np.array(paths, dtype=object)
        X = X[:, None] if kind == "matrix" else X
    assert np.array_equal(ImageEncoder().fit_transform(X), ImageEncoder().fit_transform(pictures))


def test_batches_have_the_size_asked_for(means, pictures, photos):
    made = means()
    for X in (pictures, paths_of(photos)):
        made.batches.clear()
        ImageEncoder(batch_size=4).fit(X).transform(X)
        assert made.batches == [1, 4, 2]  # the first finds the number of features


def test_a_network_with_a_fixed_batch_gets_full_ones(means, pictures):
    plain = means() and ImageEncoder().fit_transform(pictures)
    made = means(batch_size=4)
    assert np.array_equal(ImageEncoder(batch_size=5).fit_transform(pictures), plain)
    assert set(made.batches) == {4}


def test_a_broken_file_is_named_or_missing(means, photos):
    means()
    paths = paths_of(photos)
    (photos / "2.png").write_bytes(b"no image")
    (photos / "4.png").unlink()
    with pytest.raises(ValueError, match=r"2\.png is not an image or is damaged"):
        ImageEncoder(batch_size=2).fit_transform(paths)
    found = ImageEncoder(broken="missing", batch_size=2).fit_transform(paths)
    assert np.isnan(found).all(1).tolist() == [False, False, True, False, True, False]
    assert np.isnan(ImageEncoder(broken="missing").transform([paths[2]])).all()
    with pytest.raises(ValueError, match="broken is 'skip'"):
        ImageEncoder(broken="skip").fit(paths)


def test_components(means, pictures):
    means()
    whole = ImageEncoder().fit_transform(pictures)
    encoder = ImageEncoder(n_components=3).fit(pictures)
    reduced = encoder.transform(pictures)
    assert reduced.shape == (6, 3)
    assert np.allclose(reduced, whole @ encoder.components_)
    assert np.allclose(encoder.fit_transform(pictures), reduced)
    wide = np.linalg.svd(whole)[2][:3]
    assert np.allclose(np.abs(wide @ encoder.components_), np.eye(3), atol=1e-3)
    assert encoder.get_feature_names_out().tolist() == ["embedding_0", "embedding_1", "embedding_2"]
    assert encoder.provenance("photo").reduction != ImageEncoder().provenance("photo").reduction
    same = ImageEncoder().set_components(encoder.components_)
    assert np.array_equal(same.transform(pictures), reduced)
    assert same.provenance("photo") == encoder.provenance("photo")
    assert np.array_equal(same.set_params(n_components=None).transform(pictures), whole)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"n_components": 7}, "n_components is 7, but X has 6 rows"),
        ({"n_components": 0}, "n_components is 0; it must be an integer of at least 1"),
        ({"batch_size": 0}, "batch_size is 0"),
        ({"device": "gpu"}, "device is 'gpu'"),
        ({"encoder": "efficientnet"}, r"encoder is 'efficientnet' \(did you mean 'efficientnet-lite0'\?\)"),
        ({"encoder": "timm"}, r"encoder is 'timm'; for images use .*timm:NAME"),
        ({"encoder": "timm:"}, "encoder is 'timm:'; for images use"),
        ({"encoder": "efficientnet-lite0:x"}, "encoder is 'efficientnet-lite0:x'; for images use"),
        ({"encoder": "all-minilm-l6-v2"}, "encoder is 'all-minilm-l6-v2', which encodes texts; for images use"),
        ({"encoder": 3}, "encoder is 3"),
    ],
)
def test_wrong_parameters_are_named(settings, message, means, pictures):
    means()
    with pytest.raises(ValueError, match=message):
        ImageEncoder(**settings).fit(pictures)


@pytest.mark.parametrize(
    ("X", "message"),
    [
        ("photo.png", "X is 'photo.png'; pass a list"),
        ([], "X is empty"),
        ([3], "X holds 3; pass paths"),
        (np.zeros((2, 3)), r"X has the shape \(2, 3\); pass one column"),
        (np.zeros((0, 8, 3), np.uint8), "X is empty"),
        (np.zeros((28, 28, 1), np.uint8), r"X has the shape \(28, 28, 1\), as one image has; pass X\[None\]"),
        (np.zeros((8, 8, 3), np.uint8), r"X has the shape \(8, 8, 3\), as one image has; pass X\[None\]"),
    ],
)
def test_other_inputs_are_refused(X, message, means):
    means()
    with pytest.raises(ValueError, match=message):
        ImageEncoder().fit_transform(X)


def test_components_need_a_fit(means, pictures):
    means()
    with pytest.raises(NotFittedError, match="call fit first"):
        ImageEncoder(n_components=2).transform(pictures)
    other = ImageEncoder(n_components=2).fit(pictures).components_[:-1]
    with pytest.raises(ValueError, match=r"components has the shape \(5, 2\)"):
        ImageEncoder().set_components(other)


def test_encoders_are_cloned_and_copied_without_their_networks(means, pictures):
    means()
    encoder = ImageEncoder(n_components=2).fit(pictures)
    found = encoder.transform(pictures)
    assert not hasattr(clone(encoder), "components_")
    copied = pickle.loads(pickle.dumps(encoder))
    assert "_loaded" not in vars(copied)
    assert np.array_equal(copied.transform(pictures), found)


def test_a_pipeline(means, pictures):
    means()
    noise = np.random.default_rng(1).integers(0, 6, (60, *pictures.shape[1:]), dtype=np.uint8)
    X, y = np.concatenate([pictures] * 10) + noise, [["red", "green", "blue"][i % 3] for i in range(60)]
    model = make_pipeline(ImageEncoder(), PartialLabelClassifier(folds=2, random_state=0)).fit(X, y)
    assert model.predict(pictures).tolist() == y[:6]


def test_frames_have_the_names_of_features(means, pictures):
    pytest.importorskip("pandas")
    means()
    found = ImageEncoder().set_output(transform="pandas").fit_transform(pictures)
    assert list(found.columns) == [f"embedding_{j}" for j in range(6)]


def test_texts(monkeypatch):
    def encode(texts):
        return torch.tensor([[len(text), text.count("a")] for text in texts]).float()

    monkeypatch.setattr(networks, "load", lambda name, kind, device: Network(encode, "1", "ab"))
    found = TextEncoder(batch_size=2).fit_transform(["banana", None, "x", float("nan")])
    assert found.tolist() == [[6, 3], [0, 0], [1, 0], [0, 0]]
    assert TextEncoder().provenance("caption").preparation == ""
    with pytest.raises(ValueError, match="X holds 3; pass texts"):
        TextEncoder().fit(["a", 3])
    with pytest.raises(ValueError, match="which encodes images; for texts use"):
        TextEncoder("efficientnet-lite0").fit(["a"])


def test_every_encoder_can_be_named():
    for name, scheme in ENCODERS.items():
        assert scheme.example.partition(":")[0] == name
        for kind in scheme.kinds:
            assert networks.find(scheme.example, kind)[0] is scheme
