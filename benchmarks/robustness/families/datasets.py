"""Datasets for experiments: `candidly.data.load` on damaged and odd .npz, .mat and table files, and on images."""

import io
import pickle
import struct
import zipfile
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import scipy.io
import scipy.sparse

from benchmarks.robustness import made
from benchmarks.robustness.case import Case, Expected, either, error, right, run, warning
from candidly import data

FAMILY = "datasets"
N = made.ROWS


def load(name: str) -> Any:
    """Load a file."""
    return data.load(Path(name))


def good(dataset: Any) -> bool:
    """Check that a dataset equals the good rows."""
    return made.same(np.asarray(dataset.X, float), np.asarray(made.features())) and made.same(dataset.S, made.matrix())


def npz(**changes: Any) -> Callable[[], Any]:
    """Return a call of `load` on a changed .npz file."""
    return lambda: load(made.npz("bad.npz", **changes))


def raw(make: Callable[[], bytes], name: str) -> Callable[[], Any]:
    """Return a call of `load` on a file with these bytes."""
    return lambda: load(made.put(name, make()))


def npz_bytes(**changes: Any) -> bytes:
    """Return the bytes of an .npz file."""
    sink = io.BytesIO()
    arrays = {"X": made.features(), "S": made.matrix(), "y": made.truth()} | changes
    np.savez(sink, **{key: value for key, value in arrays.items() if value is not None})
    return sink.getvalue()


def zipped(members: dict[str, bytes], compression: int = zipfile.ZIP_DEFLATED) -> bytes:
    """Return a zip archive."""
    sink = io.BytesIO()
    with zipfile.ZipFile(sink, "w", compression) as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    return sink.getvalue()


def header(shape: str, descr: str = "'<f8'", order: str = "False") -> bytes:
    """Return the header of an .npy file that claims this shape."""
    text = f"{{'descr': {descr}, 'fortran_order': {order}, 'shape': {shape}, }}".encode()
    text += b" " * (118 - len(text)) + b"\n"
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(text)) + text


def with_x(content: bytes) -> Callable[[], bytes]:
    """Return the bytes of an .npz file whose X has this content."""

    def make() -> bytes:
        sink = io.BytesIO()
        np.save(sink, made.matrix())
        return zipped({"X.npy": content, "S.npy": sink.getvalue()})

    return make


class Payload:
    """An object whose unpickling would write a file."""

    def __reduce__(self) -> Any:
        return (Path.touch, (Path("unpickled"),))


def _safe(result: Any) -> bool:
    return not Path("unpickled").exists()


def _pickled() -> bytes:
    sink = io.BytesIO()
    np.save(sink, np.array([[Payload()]], dtype=object), allow_pickle=True)
    return sink.getvalue()


def _bomb() -> bytes:
    """Return an .npz file of 8 MB whose X takes 8 GiB."""
    sink = io.BytesIO()
    np.save(sink, np.ones((1 << 16, 2), bool))
    with zipfile.ZipFile(archive := io.BytesIO(), "w", zipfile.ZIP_DEFLATED, compresslevel=1) as stream:
        stream.writestr("S.npy", sink.getvalue())
        with stream.open("X.npy", "w", force_zip64=True) as member:
            member.write(header(f"({1 << 16}, {1 << 12})"))
            for _ in range(256):
                member.write(bytes(1 << 23))
    return archive.getvalue()


NPZ: dict[str, tuple[Callable[[], Any], Expected]] = {
    "good": (npz(), right(good)),
    "compressed": (
        lambda: (np.savez_compressed("bad.npz", X=made.features(), S=made.matrix()), load("bad.npz"))[1],
        right(good),
    ),
    "without X": (npz(X=None), error("X")),
    "without S": (npz(S=None), error("S")),
    "without y": (npz(y=None), right(good)),
    "another array": (npz(extra=np.zeros(3)), either("extra", check=good)),
    "X of texts": (npz(X=np.full((N, 2), "a")), error("X")),
    "X of complex numbers": (npz(X=made.features() * 1j), error("X")),
    "X of objects": (npz(X=made.features().astype(object)), error("X", "bad.npz")),
    "X of dates": (npz(X=np.zeros((N, 1), "datetime64[D]")), error("X")),
    "X with NaN": (npz(X=np.where(np.arange(3) == 1, np.nan, made.features())), error("X", "NaN", "nan", "row 0")),
    "X with infinity": (npz(X=np.where(np.arange(3) == 1, np.inf, made.features())), error("X", "inf", "row 0")),
    "X with 1-D": (npz(X=made.features()[:, 0]), error("X")),
    "X with 5-D": (npz(X=np.zeros((N, 1, 2, 2, 2))), error("X")),
    "X with too few rows": (npz(X=made.features()[:50]), error("X", "rows")),
    "X without columns": (npz(X=made.features()[:, :0]), error("X", "feature", "column")),
    "no rows": (npz(X=made.features()[:0], S=made.matrix()[:0], y=made.truth()[:0]), error("rows", "bad.npz")),
    "X of float16": (npz(X=made.features().astype(np.float16)), right(lambda d: d.X.shape == (N, 3))),
    "X of long doubles": (npz(X=made.features().astype(np.longdouble)), either("X", check=lambda d: good(d))),
    "X big-endian": (npz(X=made.features().astype(">f8")), right(good)),
    "X in Fortran order": (npz(X=np.asfortranarray(made.features())), right(good)),
    "S of integers": (npz(S=made.matrix().astype(int)), right(good)),
    "S of 2": (npz(S=made.matrix() * 2), error("S")),
    "S of probabilities": (npz(S=made.matrix() * 0.5), error("S")),
    "S with NaN": (npz(S=np.where(made.matrix(), np.nan, 0)), error("S")),
    "S transposed": (npz(S=made.matrix().T), error("S", "rows")),
    "S with 1-D": (npz(S=made.matrix()[:, 0]), error("S")),
    "S with an empty row": (npz(S=np.where(np.arange(N)[:, None] == 7, False, made.matrix())), error("row 7")),
    "S of one class": (npz(S=np.ones((N, 1), bool), y=None), error("class")),
    "S of texts": (npz(S=made.matrix().astype(str)), error("S")),
    "y of floats": (npz(y=made.truth() * 1.0), error("y")),
    "y of texts": (npz(y=np.array(["a"] * N)), error("y")),
    "y out of range": (npz(y=made.truth() + 5), error("y", "label")),
    "y negative": (npz(y=made.truth() - 1), error("y", "label")),
    "y too short": (npz(y=made.truth()[:5]), error("y", "label")),
    "y one-hot": (npz(y=np.eye(3)[made.truth()]), error("y")),
    "y outside of the candidates": (npz(y=(made.truth() + 1) % 3), either("y", "label", check=good)),
    "classes of another length": (npz(classes=np.array(["a", "b"])), error("classes", "class")),
    "classes twice": (npz(classes=np.array(["a", "a", "b"])), error("'a'", "class")),
    "classes of floats": (npz(classes=np.array([0.5, 1.5, 2.5])), error("classes")),
    "classes of objects": (npz(classes=np.array(["a", None, "b"], dtype=object)), error("classes", "bad.npz")),
    "an empty class name": (npz(classes=np.array(["a", "", "b"])), error("class")),
    "truncated": (raw(lambda: npz_bytes()[:-50], "bad.npz"), error("bad.npz")),
    "half": (raw(lambda: (b := npz_bytes())[: len(b) // 2], "bad.npz"), error("bad.npz")),
    "a flipped byte": (
        raw(lambda: (b := bytearray(npz_bytes())).__setitem__(400, b[400] ^ 255) or bytes(b), "bad.npz"),
        error("bad.npz"),
    ),
    "empty": (raw(lambda: b"", "bad.npz"), error("bad.npz")),
    "text": (raw(lambda: b"hello", "bad.npz"), error("bad.npz")),
    "an .npy file": (raw(lambda: header("(3, 3)") + bytes(72), "bad.npz"), error("bad.npz")),
    "a pickle": (raw(lambda: pickle.dumps(Payload()), "bad.npz"), error("bad.npz")),
    "a pickled array": (raw(lambda: with_x(_pickled())(), "bad.npz"), error("bad.npz", "X")),
    "an archive of other files": (raw(lambda: zipped({"hello.txt": b"hi"}), "bad.npz"), error("bad.npz", "X")),
    "a huge header": (raw(with_x(header(f"({10**12}, {10**6})")), "bad.npz"), error("bad.npz", "X")),
    "a negative shape": (raw(with_x(header("(-1, 3)") + bytes(24)), "bad.npz"), error("bad.npz", "X")),
    "a header with code": (raw(with_x(header("__import__('os').getpid()")), "bad.npz"), error("bad.npz", "X")),
    "a header of a million brackets": (
        raw(with_x(b"\x93NUMPY\x02\x00" + struct.pack("<I", 10**6) + b"(" * 10**6), "bad.npz"),
        error("bad.npz", "X"),
    ),
    "too few bytes": (raw(with_x(header(f"({N}, 3)") + bytes(16)), "bad.npz"), error("bad.npz", "X")),
    "too many bytes": (raw(with_x(header(f"({N}, 3)") + bytes(8 * 3 * N + 99)), "bad.npz"), error("bad.npz", "X")),
    "encrypted": (raw(lambda: _encrypted(), "bad.npz"), error("bad.npz")),
    "a bomb": (raw(_bomb, "bad.npz"), error("bad.npz")),
}


def _encrypted() -> bytes:
    content = bytearray(npz_bytes())
    place = 0
    while (place := content.find(b"PK\x03\x04", place)) >= 0:
        content[place + 6] |= 1
        place += 4
    place = 0
    while (place := content.find(b"PK\x01\x02", place)) >= 0:
        content[place + 8] |= 1
        place += 4
    return bytes(content)


def mat(**changes: Any) -> Callable[[], Any]:
    """Return a call of `load` on a changed .mat file."""
    fields = {
        "data": made.features(),
        "partial_target": made.matrix().T.astype(float),
        "target": np.eye(3)[:, made.truth()],
    }
    fields = {name: value for name, value in (fields | changes).items() if value is not None}
    return lambda: (scipy.io.savemat("bad.mat", fields), load("bad.mat"))[1]


def mat_bytes() -> bytes:
    """Return the bytes of a good .mat file."""
    sink = io.BytesIO()
    fields = {
        "data": made.features(),
        "partial_target": made.matrix().T.astype(float),
        "target": np.eye(3)[:, made.truth()],
    }
    scipy.io.savemat(sink, fields)
    return sink.getvalue()


def _mat_bomb(rows: int, columns: int) -> bytes:
    """Return a .mat file of a few hundred bytes whose sparse matrix or array claims a huge shape."""
    sink = io.BytesIO()
    scipy.io.savemat(
        sink, {"data": scipy.sparse.csc_matrix((rows, columns)), "partial_target": np.ones((2, 2)), "target": np.eye(2)}
    )
    return sink.getvalue()


def _mat_compressed() -> bytes:
    """Return a .mat file whose compressed data expand a thousandfold to 2 GB."""
    inner = struct.pack("<II", 14, 2**31 - 1)
    packed = zlib.compressobj(1)
    content = packed.compress(inner)
    for _ in range(200):
        content += packed.compress(bytes(10_000_000))
    content += packed.flush()
    return (
        b"MATLAB 5.0 MAT-file".ljust(124)
        + struct.pack("<HH", 0x0100, 0x4D49)
        + struct.pack("<II", 15, len(content))
        + content
    )


MAT: dict[str, tuple[Callable[[], Any], Expected]] = {
    "good": (mat(), right(good)),
    "without data": (mat(data=None), error("data")),
    "without candidates": (mat(partial_target=None), error("partial_target")),
    "data of texts": (mat(data=np.array(["a", "b"])), error("data")),
    "data with NaN": (mat(data=made.features() * np.nan), error("data", "NaN", "nan", "row 0")),
    "data with infinity": (mat(data=np.full((N, 3), np.inf)), error("data", "inf", "row 0")),
    "complex data": (mat(data=made.features() * 1j), error("data", "complex")),
    "cells": (mat(data=np.array([[1], ["a"]], dtype=object)), error("data")),
    "a struct": (mat(data={"x": 1}), error("data")),
    "candidates of 2": (mat(partial_target=made.matrix().T * 2.0), error("partial_target")),
    "candidates of probabilities": (mat(partial_target=made.matrix().T * 0.5), error("partial_target")),
    "candidates of another size": (mat(partial_target=np.ones((3, 7))), error("partial_target", "rows")),
    "an empty row": (
        mat(partial_target=np.where(np.arange(N) == 7, 0.0, made.matrix().T)),
        error("row 7", "candidates"),
    ),
    "labels of another size": (mat(target=np.eye(3)), error("target")),
    "two labels in a row": (mat(target=np.ones((3, N))), error("target")),
    "sparse candidates": (mat(partial_target=scipy.sparse.csc_matrix(made.matrix().T.astype(float))), right(good)),
    "truncated": (raw(lambda: mat_bytes()[:-100], "bad.mat"), error("bad.mat")),
    "half": (raw(lambda: (b := mat_bytes())[: len(b) // 2], "bad.mat"), error("bad.mat")),
    "header only": (raw(lambda: mat_bytes()[:128], "bad.mat"), error("bad.mat")),
    "empty": (raw(lambda: b"", "bad.mat"), error("bad.mat")),
    "text": (raw(lambda: b"hello" * 100, "bad.mat"), error("bad.mat")),
    "HDF5": (raw(lambda: b"MATLAB 7.3 MAT-file".ljust(512) + b"\x89HDF\r\n\x1a\n", "bad.mat"), error("bad.mat")),
    "big-endian mark": (raw(lambda: (b := mat_bytes())[:126] + b"MI" + b[128:], "bad.mat"), error("bad.mat")),
    "random bytes after the header": (
        raw(lambda: mat_bytes()[:128] + np.random.default_rng(0).bytes(3000), "bad.mat"),
        error("bad.mat"),
    ),
    "a sparse matrix of 10**9 columns": (raw(lambda: _mat_bomb(2, 10**9 // 8), "bad.mat"), error("bad.mat", "data")),
    "a sparse matrix of 10**9 rows": (raw(lambda: _mat_bomb(10**9, 2), "bad.mat"), error("bad.mat", "data")),
    "a sparse matrix of 30,000 × 30,000": (
        raw(lambda: _mat_bomb(30_000, 30_000), "bad.mat"),
        error("bad.mat", "data", "row", "target"),
    ),
    "a compressed bomb": (raw(_mat_compressed, "bad.mat"), error("bad.mat")),
}


def table(text: str, **options: Any) -> Callable[[], Any]:
    """Return a call of `read_table` on a CSV file."""
    return lambda: data.read_table(made.put("bad.csv", text), **({"candidates": "tags", "label": "truth"} | options))


NUMBERS = made.csv(made.columns(id=None, colour=None))
TABLES: dict[str, tuple[Callable[[], Any], Expected]] = {
    "good": (
        table(NUMBERS),
        right(lambda d: made.same(d.S, made.matrix()) and made.same(d.X.astype(float), made.features()[:, :2].copy())),
    ),
    "an unclosed quote": (table(NUMBERS.replace(",emu", ',"emu', 1)), error("line", "quote")),
    "an unclosed quote in the last line": (
        table(NUMBERS.rstrip("\n").rsplit(",", 1)[0] + ',"cat'),
        error("line", "quote"),
    ),
    "two unclosed quotes": (table(NUMBERS.replace(",emu", ',"emu', 2)), error("line", "quote")),
    "a text feature": (table(made.csv(made.columns(id=None))), error("colour")),
    "decimal commas": (
        table(
            made.csv(
                made.columns(id=None, colour=None, size=[c.replace(".", ",") for c in made.columns()["size"]]), ";"
            ),
            delimiter=";",
        ),
        error("size"),
    ),
    "a missing number": (table(made.csv(made.columns(id=None, colour=None, size={7: ""}))), error("size", "row 7")),
    "NaN": (table(made.csv(made.columns(id=None, colour=None, size={7: "nan"}))), error("size", "row 7")),
    "infinity": (table(made.csv(made.columns(id=None, colour=None, size={7: "inf"}))), error("size", "row 7")),
    "an unknown label": (
        table(made.csv(made.columns(id=None, colour=None, truth={7: "owl"}))),
        warning("label", "owl"),
    ),
    "a missing label": (table(made.csv(made.columns(id=None, colour=None, truth={7: ""}))), error("row 7", "truth")),
    "no features": (
        table(made.csv(made.columns(id=None, colour=None, size=None, age=None))),
        error("feature", "column"),
    ),
    "ragged": (table(NUMBERS + "1,2\n"), error("line")),
    "another separator": (
        table(made.csv(made.columns(id=None, colour=None, tags=[c.replace("|", ";") for c in made.columns()["tags"]]))),
        warning(";", "label", "separator"),
    ),
    "empty": (table(""), error("bad.csv")),
    "no rows": (table("size,tags,truth\n"), error("bad.csv")),
    "latin-1": (
        lambda: data.read_table(
            made.put("bad.csv", NUMBERS.replace("emu", "ému").encode("latin-1")), candidates="tags", label="truth"
        ),
        error("UTF-8"),
    ),
}


def _idx_case(content: bytes) -> Callable[[], Any]:
    """Return a call of `load` on a folder with a damaged file of MNIST."""

    def act() -> Any:
        for name in (
            "train-images-idx3-ubyte",
            "train-labels-idx1-ubyte",
            "t10k-images-idx3-ubyte",
            "t10k-labels-idx1-ubyte",
        ):
            made.put(f"here/mnist/{name}", content)
        return data.load("mnist", "here")

    return act


PUBLISHED: dict[str, tuple[Callable[[], Any], Expected]] = {
    "mnist from empty files": (_idx_case(b""), error("mnist", "ubyte")),
    "mnist from text": (_idx_case(b"hello"), error("mnist", "ubyte")),
    "mnist from a huge header": (_idx_case(bytes((0, 0, 8, 3)) + b"\x7f\xff\xff\xff" * 3), error("mnist", "ubyte")),
    "lost from another file": (
        lambda: (made.put("here/realworld/lost.mat", mat_bytes()), data.load("lost", "here"))[1],
        error("lost.mat"),
    ),
    "lost from an empty file": (
        lambda: (made.put("here/realworld/lost.mat", b""), data.load("lost", "here"))[1],
        error("lost.mat"),
    ),
    "lost from a folder": (
        lambda: (made.put("here/realworld/lost.mat/x", b""), data.load("lost", "here"))[1],
        error("lost.mat", "lost"),
    ),
    "cifar10 from empty files": (
        lambda: (
            [made.put(f"here/cifar-10-batches-bin/data_batch_{i}.bin", b"") for i in range(1, 6)],
            data.load("cifar10", "here"),
        )[1],
        error("cifar10", "bin"),
    ),
    "svhn from text": (
        lambda: (
            made.put("here/svhn/train_32x32.mat", b"x"),
            made.put("here/svhn/test_32x32.mat", b"x"),
            data.load("svhn", "here"),
        )[2],
        error("svhn", "32x32"),
    ),
    "a name in upper case": (lambda: data.load("LOST", "here"), error("lost")),
    "a path as name": (lambda: data.load("../lost", "here"), error("../lost")),
}


def cases() -> Iterator[Case]:
    """Yield the cases."""
    for family, table_ in (("npz", NPZ), ("mat", MAT), ("table", TABLES), ("published", PUBLISHED)):
        for name, (act, expected) in table_.items():
            yield Case(FAMILY, f"{family}: {name}", act, expected, gib=1)
    yield Case(FAMILY, "nothing was unpickled", lambda: _unpickled(), right(_safe))
    commands = {
        "an unknown name": (("datasets", "losst"), error("lost")),
        "a damaged file": (("datasets", "bad.npz"), error("bad.npz")),
        "a missing file": (("datasets", "none.npz"), error("none.npz")),
    }
    for name, (arguments, expected) in commands.items():
        yield Case(
            FAMILY,
            f"datasets command: {name}",
            lambda arguments=arguments: (made.put("bad.npz", b"x"), run(*arguments))[1],
            expected,
        )


def _unpickled() -> None:
    for name, content in (
        ("a.npz", with_x(_pickled())()),
        ("b.npz", pickle.dumps(Payload())),
        ("c.npz", zipped({"X.npy": pickle.dumps(Payload())})),
    ):
        try:
            load(made.put(name, content))
        except ValueError:
            continue
