"""`candidly embed`: images and texts to features, in one file or as a stream, and models that refuse other features."""

import io
import json
import os
import shutil
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from PIL import Image

from candidly.cli import main
from candidly.encoders import ImageEncoder, embedding, networks
from candidly.encoders.images import Preparation
from candidly.encoders.networks import Network
from candidly.tables.provenance import of_table


@pytest.fixture(autouse=True)
def stand_in(monkeypatch):
    """Let encoders be small functions; `onnx:OTHER` has other weights."""

    def images(batch):
        return torch.cat([batch.mean((2, 3)), batch.amax((2, 3)) / 2], 1)

    def texts(batch):
        return torch.tensor([[len(text), text.count("a"), 1] for text in batch]).float()

    def load(name, kind, device):
        networks.find(name, kind)
        weights = ("cd" if name.startswith("onnx") else "ab") * 32
        return Network(
            images if kind == "image" else texts, "1", weights, Preparation(4, 4) if kind == "image" else None
        )

    monkeypatch.setattr(networks, "load", load)


@pytest.fixture
def place(tmp_path, monkeypatch):
    """A working folder with 12 images in two folders, a list of them, and captions."""
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    lines = ["photo,tags,weight"]
    for i in range(12):
        pixels = rng.integers(0, 90, (6, 8, 3))
        pixels[..., i % 3] += 150
        name = f"{'b' if i % 2 else 'a'}/{i:02d}.png"
        Path("photos", name).parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(pixels.astype(np.uint8)).save(Path("photos", name))
        colour = ("red", "green", "blue")
        lines.append(f"{name},{colour[i % 3]}|{colour[(i + 1) % 3]},{i / 2}")
    Path("photos.csv").write_text("\n".join(lines) + "\n")
    Path("captions.csv").write_text("id,caption\n1,banana\n2,\n3,plum\n")
    return tmp_path


def run(command, capsys):
    """Run a command; return its exit status, output and messages."""
    try:
        main(command.split())
        status = 0
    except SystemExit as end:
        status = end.code or 0
    return status, *capsys.readouterr()


def refused(command, capsys):
    status, _, messages = run(command, capsys)
    assert status == 1
    assert messages.count("\n") == 1
    return messages


def test_a_folder_of_images(place, capsys):
    status, printed, messages = run("embed photos --out features.parquet", capsys)
    assert (status, messages) == (0, "")
    assert printed.startswith("12 rows, 6 features from efficientnet-lite0 (weights abababab)\nencoded in ")
    found = pq.read_table("features.parquet")
    assert found.column_names == ["image", *(f"image_{j}" for j in range(6))]
    names = found.column("image").to_pylist()
    assert names == sorted(names) == sorted(str(p.relative_to("photos")) for p in Path("photos").rglob("*.png"))
    wanted = ImageEncoder().transform([str(Path("photos", name)) for name in names])
    assert np.array_equal(np.stack([found.column(f"image_{j}") for j in range(6)], 1), wanted)
    (made,) = of_table(found, "features")
    assert (made.column, made.encoder, made.version, made.weights[:4]) == ("image", "efficientnet-lite0", "1", "abab")


def test_a_pattern(place, capsys):
    assert run("embed photos/a/*.png --image photo --out features.arrow --json", capsys)[0] == 0
    found = pa.ipc.open_file("features.arrow").read_all()
    assert found.column("photo").to_pylist() == [f"photos/a/{i:02d}.png" for i in range(0, 12, 2)]


def test_a_table_keeps_its_columns(place, capsys):
    assert run("embed photos.csv --image photo --root photos --out features.parquet", capsys)[0] == 0
    found = pq.read_table("features.parquet")
    assert found.column_names[:4] == ["photo", "tags", "weight", "photo_0"]
    assert found.column("weight").to_pylist() == [i / 2 for i in range(12)]
    Path("photos.csv").rename("photos/photos.csv")  # paths are relative to the table
    assert run("embed photos/photos.csv --image photo --out again.parquet", capsys)[0] == 0
    assert pq.read_table("again.parquet").equals(found)


def test_texts_from_standard_input(place, capsys, monkeypatch):
    class Input:
        buffer = io.BytesIO(Path("captions.csv").read_bytes())

    monkeypatch.setattr("sys.stdin", Input)
    assert run("embed captions.csv --text caption --out captions.tsv --quiet", capsys) == (0, "", "")
    lines = Path("captions.tsv").read_text().splitlines()
    assert lines[0] == "id\tcaption\tcaption_0\tcaption_1\tcaption_2"
    assert [line.split("\t")[2:4] for line in lines[1:]] == [["6", "3"], ["0", "0"], ["4", "0"]]
    status, printed, _ = run("embed - --text caption --out -", capsys)
    assert (status, printed.splitlines()) == (0, [line.replace("\t", ",") for line in lines])


@pytest.mark.filterwarnings("default")
def test_a_model_refuses_features_of_another_encoder(place, capsys):
    for name, encoder in (("ours", "efficientnet-lite0"), ("other", "onnx:OTHER")):
        Path("many.csv").write_text(
            "photo,tags\n"
            + "".join(f"{'b' if i % 2 else 'a'}/{i % 12:02d}.png,{'red|blue'[: 3 + 5 * (i % 2)]}\n" for i in range(40))
        )
        command = f"embed many.csv --image photo --root photos --encoder {encoder} --out {name}.parquet"
        assert run(command, capsys)[0] == 0
    assert run("fit ours.parquet --candidates tags --epochs 1 --folds 2 --out model --quiet", capsys)[0] == 0
    assert run("predict model ours.parquet --out p.csv", capsys)[0] == 0
    saved = json.loads(Path("model/model.json").read_text())["facts"]["estimator"]["schema"]
    assert saved["encoders"][0]["weights"] == "ab" * 32
    assert saved["drop"] == ["photo"]
    for command in (
        "predict model {} --out p.csv",
        "evaluate model {} --labels tags",
        "clean {} --model model --out c.csv",
    ):
        message = refused(command.format("other.parquet"), capsys)
        assert "other.parquet has features of 'photo' from the encoder onnx:OTHER (weights cdcdcdcd" in message
    Path("parts").mkdir()
    Path("other.parquet").rename("parts/other.parquet")
    assert "from the encoder onnx:OTHER" in refused("predict model parts --out streamed/", capsys)
    rows = pq.read_table("ours.parquet").replace_schema_metadata()
    pq.write_table(rows, "bare.parquet")
    status, _, messages = run("predict model bare.parquet --out p.csv", capsys)
    assert status == 0
    assert "bare.parquet does not say which encoder computed its features" in messages


def test_components_are_kept_in_the_file_and_used_again(place, capsys):
    assert run("embed photos --reduce 3 --out few.parquet", capsys)[0] == 0
    few = pq.read_table("few.parquet")
    assert few.column_names == ["image", "image_0", "image_1", "image_2"]
    assert run("embed photos/a/*.png --like few.parquet --out same.parquet", capsys)[0] == 0
    same = pq.read_table("same.parquet")
    assert of_table(same, "same") == of_table(few, "few")
    assert np.allclose(same.column("image_1"), few.column("image_1")[:6], atol=1e-5)
    assert "has features of 'image', not of 'photo'" in refused(
        "embed photos --image photo --like few.parquet --out x.parquet", capsys
    )
    damaged = few.replace_schema_metadata({**few.schema.metadata, b"candidly.components.image": b"6 3 AAAA"})
    pq.write_table(damaged, "damaged.parquet")
    assert "damaged components" in refused("embed photos --like damaged.parquet --out x.parquet", capsys)


def test_other_weights_than_those_of_like_are_refused(place, capsys, monkeypatch):
    assert run("embed photos --out features.parquet", capsys)[0] == 0
    load = networks.load
    monkeypatch.setattr(networks, "load", lambda name, kind, device: load("onnx:OTHER", kind, device))
    message = refused("embed photos --like features.parquet --out x.parquet", capsys)
    assert "features.parquet has features from efficientnet-lite0 (weights abababab, 4x4" in message
    assert "the encoder here is efficientnet-lite0 (weights cdcdcdcd, 4x4" in message


@pytest.mark.filterwarnings("default")
def test_broken_images_stop_or_are_left_out(place, capsys):
    Path("photos/a/04.png").write_text("no image")
    Path("photos/b/05.png").write_bytes(Path("photos/b/05.png").read_bytes()[:-40])
    assert "photos/a/04.png is not an image or is damaged; repair or remove it" in refused(
        "embed photos --out features.parquet", capsys
    )
    assert not Path("features.parquet").exists()
    Path("photos/a/02.png").unlink()
    status, printed, messages = run(
        "embed photos.csv --image photo --root photos --skip-broken --out f.parquet", capsys
    )
    assert status == 0
    assert "left out 3 rows of photos.csv" in messages
    assert "rows left out because their image is missing or cannot be read: 3" in printed
    found = pq.read_table("f.parquet")
    assert found.num_rows == 9
    assert np.isfinite(found.column("photo_0")).all()


def stream_tables(folder):
    return {path.name: pq.read_table(path) for path in sorted(Path(folder).glob("*.parquet"))}


def test_shards_share_a_stream(place, capsys, monkeypatch):
    monkeypatch.setattr(embedding, "LIST_ROWS", 5)
    assert run("embed photos --reduce 2 --out whole/", capsys)[0] == 0
    for i in (1, 2):
        status, printed, _ = run(f"embed photos --reduce 2 --out parts/ --shard {i}/2", capsys)
        assert status == 0
        assert printed.startswith(f"{(7, 5)[i - 1]} rows, 2 features")
    whole, parts = stream_tables("whole"), stream_tables("parts")
    assert list(whole) == [f"images-0000{i}.parquet" for i in range(3)]
    assert all(parts[name].equals(table, check_metadata=True) for name, table in whole.items())
    assert "in which encoder was" in refused("embed photos --encoder onnx:OTHER --reduce 2 --out whole/", capsys)


def test_a_killed_stream_goes_on(place, capsys, monkeypatch):
    monkeypatch.setattr(embedding, "LIST_ROWS", 5)
    real, done = embedding.Embedding.apply, []

    def apply(self, table, file):
        if len(done) == 1:
            raise KeyboardInterrupt
        done.append(table.num_rows)
        return real(self, table, file)

    monkeypatch.setattr(embedding.Embedding, "apply", apply)
    assert run("embed photos --out parts/", capsys)[0] == 130
    assert len(stream_tables("parts")) == 1
    monkeypatch.setattr(embedding.Embedding, "apply", lambda *a: done.append(a[1].num_rows) or real(*a))
    assert run("embed photos --out parts/", capsys)[0] == 0
    assert done == [5, 5, 2]
    assert run("embed photos --out whole/ --quiet", capsys) == (0, "", "")
    whole = stream_tables("whole")
    assert all(stream_tables("parts")[name].equals(table) for name, table in whole.items())
    Image.new("RGB", (4, 4)).save("photos/new.png")
    assert 'in which images was "12 files, state' in refused("embed photos --out parts/", capsys)


def test_a_stream_continues_with_the_same_images_only(place, capsys):
    """Same names, number and sizes of files; other images, in another folder or changed afterwards."""
    for name, colour in (("train", "red"), ("test", "blue")):
        Path(name).mkdir()
        Image.new("RGB", (4, 4), colour).save(f"{name}/0.bmp")
        os.utime(f"{name}/0.bmp", (0, 0))
    assert run("embed train --out features/", capsys)[0] == 0
    assert "in which root was" in refused("embed test --out features/", capsys)
    shutil.copyfile("test/0.bmp", "train/0.bmp")
    assert 'in which images was "1 files, state' in refused("embed train --out features/", capsys)
    Path("list.csv").write_text("image\n0.bmp\n")
    assert run("embed list.csv --image image --root train --out listed/", capsys)[0] == 0
    assert "in which root was" in refused("embed list.csv --image image --root test --out listed/", capsys)


def test_absolute_paths_say_where_images_are(place, capsys, monkeypatch):
    assert run(f"embed {place}/photos/*/*.png --out {place}/features/", capsys)[0] == 0
    monkeypatch.chdir("photos")
    assert run(f"embed {place}/photos/*/*.png --out {place}/features/", capsys)[0] == 0


@pytest.mark.filterwarnings("default")
def test_links_to_folders_are_followed_last_and_to_nothing_are_broken(place, capsys):
    Path("photos/0").symlink_to(Path("photos/a").resolve())  # before a in the order of names
    Path("photos/up").symlink_to(place)
    Path("elsewhere").mkdir()
    Image.new("RGB", (4, 4)).save("elsewhere/far.png")
    Path("photos/more").symlink_to(Path("elsewhere").resolve())
    Path("photos/gone.png").symlink_to("nothing.png")
    images = embedding.find_images("photos")
    assert [path for path in images.paths if path.startswith(("0/", "up/"))] == []
    assert {"a/00.png", "more/far.png", "gone.png"} <= set(images.paths)
    assert run("embed photos --skip-broken --out features/", capsys)[0] == 0
    assert sum(table.num_rows for table in stream_tables("features").values()) == 13


@pytest.mark.filterwarnings("default")
def test_a_shard_without_files_is_pointed_out(place, capsys):
    status, _, told = run("embed photos.csv --image photo --root photos --out features/ --shard 2/2", capsys)
    assert status == 0
    assert "shard 2/2 is empty, because the number of files to read is 1; use fewer shards" in told


def test_an_encoder_whose_file_was_moved_is_named_beside_like(place, capsys):
    assert run("embed photos --encoder onnx:net --reduce 2 --out features/", capsys)[0] == 0
    assert run("embed photos --like features --encoder onnx:moved/net --out f.parquet", capsys)[0] == 0
    assert pq.read_table("f.parquet").num_columns == 3  # the same components
    message = refused("embed photos --like features --encoder efficientnet-lite0 --out g.parquet", capsys)
    assert "features has features from onnx:net (weights cdcdcdcd, components " in message


@pytest.mark.parametrize("order", [("1", "2"), ("2", "1")])
@pytest.mark.parametrize("command", ["fit {} --out model", "clean {} --out cleaned/ --train-rows 100"])
def test_files_of_one_table_have_one_encoder(command, order, place, capsys):
    Path("mixed").mkdir()
    header, *lines = Path("photos.csv").read_text().splitlines()
    Path("photos.csv").write_text("\n".join([header, *lines * 10]) + "\n")
    for encoder, name in zip(("efficientnet-lite0", "onnx:OTHER"), order, strict=True):
        out = f"--encoder {encoder} --out mixed/{name}.parquet"
        assert run(f"embed photos.csv --image photo --root photos {out}", capsys)[0] == 0
    message = refused(command.format("mixed --candidates tags"), capsys)
    assert "mixed/2.parquet has features from" in message
    assert "encode all files with one encoder" in message


def test_categories_are_texts(place, capsys):
    paths = pa.array([f"{path.relative_to('photos')}" for path in sorted(Path("photos").rglob("*.png"))])
    pq.write_table(pa.table({"photo": paths.dictionary_encode()}), "photos/listed.parquet")
    assert run("embed photos/listed.parquet --image photo --out f.parquet", capsys)[0] == 0
    assert pq.read_table("f.parquet").num_rows == len(paths)


def test_tables_in_several_files(place, capsys):
    Path("lists").mkdir()
    lines = Path("photos.csv").read_text().splitlines()
    for i in (0, 1):
        Path(f"lists/{i}.csv").write_text("\n".join([lines[0], *lines[1 + 6 * i : 7 + 6 * i]]) + "\n")
    assert run("embed lists --image photo --root photos --out features/", capsys)[0] == 0
    found = stream_tables("features")
    assert list(found) == ["0.parquet", "1.parquet"]
    assert found["1.parquet"].column("photo").to_pylist() == [line.split(",")[0] for line in lines[7:]]


@pytest.mark.parametrize(
    ("command", "message"),
    [
        (
            "photos.csv --out f.parquet",
            "photos.csv is a table; name its column of image paths with --image or of texts",
        ),
        ("photos.csv --image path --out f.parquet", "photos.csv has no column 'path'; name another with --image"),
        ("photos.csv --image path --reduce 2 --out f.parquet", "photos.csv has no column 'path'"),
        ("photos.csv --image weight --out f.parquet", "0.0 does not exist or is not a file; check the path"),
        ("photos --text caption --out f.parquet", "--text names a column, and photos is not a table"),
        ("photos --out f.parquet --shard 1/2", "--shard needs a folder"),
        ("photos --out f.csv --reduce 2", "--reduce needs a file that can hold the components"),
        ("photos --out f.parquet --reduce 20", "n_components is 20, but X has 12 rows"),
        ("photos --out f.parquet --like g.parquet --reduce 2", "--like names the components; remove --reduce"),
        ("photos --out f.parquet --like photos.csv", "photos.csv is a text file, which does not note an encoder"),
        ("photos --out f.parquet --encoder resnet", "encoder is 'resnet'; for images use efficientnet-lite0"),
        ("none --out f.parquet", "none does not exist, or no file matches it"),
        ("none.csv --image photo --out f.parquet", "none.csv does not exist"),
        ("photos --out f.txt", "f.txt cannot be written: its name must end in"),
        ("photos.csv --image photo --out photos.csv", "photos.csv is both read and written"),
        ("captions.csv --text caption --skip-broken --out f.parquet", "--skip-broken applies to images"),
        ("photos.csv --image photo --text tags --out f.parquet", "--image and --text were both given"),
        ("photos --root photos --out f.parquet", "--root applies to the paths in a table"),
    ],
)
def test_wrong_options_are_explained(command, message, place, capsys):
    assert message in refused(f"embed {command}", capsys)


def test_a_feature_must_not_replace_a_column(place, capsys):
    Path("t.csv").write_text("caption,caption_0\na,1\n")
    assert "t.csv has a column 'caption_0' already" in refused("embed t.csv --text caption --out f.parquet", capsys)


def test_a_table_among_images_is_not_the_source(place, capsys):
    Path("photos/labels.csv").write_text("a\n1\n")
    Image.new("RGB", (4, 4)).save("photos/top.png")
    status, printed, _ = run("embed photos --out f.parquet", capsys)
    assert status == 0
    assert "files left out because their suffix is not that of an image: 1 (.csv 1)" in printed
    assert pq.read_table("f.parquet").num_rows == 13
