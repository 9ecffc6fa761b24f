"""Damaged `.mat` files, which must not end Python."""

import io
import struct
import subprocess
import sys
import zlib

import numpy as np
import pytest
import scipy.io
import scipy.sparse

from candidly.data.readers import mat
from candidly.data.readers.mat5 import variables

FIELDS = {
    "data": np.arange(6.0).reshape(3, 2),
    "partial_target": np.array([[1, 1, 0], [0, 1, 1]], np.uint8),
    "target": np.array([[1, 0, 0], [0, 1, 1]], np.uint8),
}
SPARSE = {name: scipy.sparse.csc_matrix(value.astype(float)) for name, value in FIELDS.items()}
OTHERS = FIELDS | {"note": "text", "cell": np.array([1, "a"], dtype=object), "z": np.eye(2) * 1j}


def saved(fields, **options):
    stream = io.BytesIO()
    scipy.io.savemat(stream, fields, **options)
    return stream.getvalue()


def element(order, kind, content):
    return struct.pack(f"{order}II", kind, len(content)) + content + bytes(-len(content) % 8)


def written(order, fields):
    """A file of matrices in either order of bytes, which scipy writes in one only."""
    parts = ["made by hand".ljust(124).encode(), struct.pack(f"{order}H2s", 0x0100, b"IM" if order == "<" else b"MI")]
    for name, value in fields.items():
        flags = element(order, 6, struct.pack(f"{order}II", 6, 0))
        shape = element(order, 5, struct.pack(f"{order}2i", *value.shape))
        numbers = element(order, 9, np.asfortranarray(value, f"{order}f8").tobytes("F"))
        parts.append(element(order, 14, flags + shape + element(order, 1, name.encode()) + numbers))
    return b"".join(parts)


def expanded(content):
    """Return the header of a compressed file and what its elements hold."""
    position, parts = 128, []
    while position < len(content):
        size = struct.unpack_from("<I", content, position + 4)[0]
        parts.append(zlib.decompress(content[position + 8 : position + 8 + size]))
        position += 8 + size
    return content[:128], parts


def compressed(head, parts):
    packed = [zlib.compress(part) for part in parts]
    return head + b"".join(struct.pack("<II", 15, len(part)) + part for part in packed)


@pytest.mark.parametrize("order", "<>")
def test_both_orders_of_bytes(order):
    X, S, y = mat.parse(written(order, FIELDS), "x.mat")
    np.testing.assert_array_equal(X, FIELDS["data"])
    np.testing.assert_array_equal(S, FIELDS["partial_target"].T != 0)
    assert y.tolist() == [0, 1, 1]


@pytest.mark.parametrize("compress", [False, True])
def test_finds_what_scipy_finds(compress):
    content = saved(OTHERS | {f"{name}_": value for name, value in SPARSE.items()}, do_compression=compress)
    found = variables(content)
    expected = {name: (shape, kind) for name, shape, kind in scipy.io.whosmat(io.BytesIO(content))}
    assert found.keys() == expected.keys()
    for name, (_, kind) in expected.items():
        assert found[name].is_numeric == (kind not in ("char", "cell")), name
    assert found["data"].shape == (3, 2)
    mat.parse(content, "x.mat")


@pytest.mark.parametrize("kind", [0, 8, 10, 11, 14, 15, 19, 20, 255, 65535])
@pytest.mark.parametrize("compress", [False, True])
def test_rejects_other_data_types(kind, compress):
    content = compressed(b"", [saved(FIELDS)[128:]]) if compress else saved(FIELDS)
    head, parts = (saved(FIELDS)[:128], [saved(FIELDS)[128:]]) if compress else (b"", [content])
    wrong = parts[0].replace(struct.pack("<II", 9, 48), struct.pack("<II", kind, 48))
    assert wrong != parts[0]
    content = compressed(head, [wrong]) if compress else wrong
    with pytest.raises(ValueError, match=rf"x.mat is not a readable .mat file \(an element of data type {kind} and 48"):
        mat.parse(content, "x.mat")


def test_rejects_what_runs_past_the_end():
    content = saved(FIELDS)
    for size in (49, 2**32 - 1):
        with pytest.raises(ValueError, match=r"x.mat is not a readable"):
            mat.parse(content.replace(struct.pack("<II", 9, 48), struct.pack("<II", 9, size)), "x.mat")
    with pytest.raises(ValueError, match=r"x.mat is not a readable"):
        mat.parse(content[:-9], "x.mat")


def test_rejects_claims_that_compression_cannot_meet():
    head, parts = expanded(saved(FIELDS, do_compression=True))
    parts[0] = parts[0][:4] + struct.pack("<I", 2**31) + parts[0][8:]
    with pytest.raises(ValueError, match="2147483648 bytes cannot come from"):
        mat.parse(compressed(head, parts), "x.mat")


def test_rejects_names_that_are_there_twice():
    content = saved(FIELDS)
    with pytest.raises(ValueError, match="data is there twice"):
        mat.parse(content + content[128:], "x.mat")


def test_rejects_sparse_matrices_with_other_indices():
    content = saved(SPARSE)
    rows = np.array(SPARSE["data"].indices, np.int32).tobytes()
    assert content.count(rows) >= 1
    for wrong in (3, 10**9, -1):
        changed = content.replace(rows, np.full(len(rows) // 4, wrong, np.int32).tobytes())
        with pytest.raises(ValueError, match=r"x.mat is not a readable"):
            mat.parse(changed, "x.mat")


@pytest.mark.parametrize("starts", [(0, 2**31 - 1, -(2**31)), (0, 5, 2), (1, 2, 5), (0, 2, 6), (0, -1, 5)])
def test_rejects_sparse_matrices_with_other_columns(starts):
    content = saved(SPARSE)
    right = np.array([0, 2, 5], np.int32).tobytes()
    assert content.count(right) == 1
    with pytest.raises(ValueError, match=r"x.mat is not a readable"):
        mat.parse(content.replace(right, np.array(starts, np.int32).tobytes()), "x.mat")


@pytest.mark.parametrize(
    "change", [(0, 9999), (0, 60), (0, 3), (4, -1), (8, -2), (4, 10**6), (12, 2), (16, -5), (16, 0)]
)
def test_rejects_headers_of_level_4_that_cannot_be(change):
    content = bytearray(saved({name: value.astype(float) for name, value in FIELDS.items()}, format="4"))
    assert mat.parse(bytes(content), "x.mat")[2].tolist() == [0, 1, 1]
    struct.pack_into("<i", content, *change)
    with pytest.raises(ValueError, match=r"x.mat is not a readable"):
        mat.parse(bytes(content), "x.mat")


FLIPS = """
import sys
import warnings

import numpy as np

from candidly.data.readers import mat
from tests.data.readers import test_mat5 as made

warnings.simplefilter("ignore")
plain = [made.saved(made.FIELDS), made.saved(made.SPARSE), made.saved(made.OTHERS), made.written(">", made.FIELDS)]
level4 = [made.saved({name: value.astype(float) for name, value in made.FIELDS.items()}, format="4")]
packed = [made.expanded(made.saved(fields, do_compression=True)) for fields in (made.FIELDS, made.SPARSE)]
generator = np.random.default_rng(int(sys.argv[1]))


def flip(content):
    content = bytearray(content)
    for _ in range(generator.integers(1, 4)):
        k = generator.integers(len(content))
        content[k] = generator.integers(256) if generator.random() < 0.5 else generator.integers(20)
    return bytes(content)


refused = 0
for i in range(int(sys.argv[2])):
    files = plain + level4 + packed
    chosen = files[i % len(files)]
    if isinstance(chosen, tuple):
        head, parts = chosen
        k = generator.integers(len(parts))
        content = made.compressed(head, [flip(part) if j == k else part for j, part in enumerate(parts)])
    else:
        content = flip(chosen)
    try:
        mat.parse(content, "x.mat")
    except ValueError:
        refused += 1
print(refused)
"""


def test_changed_bytes_do_not_end_python():
    done = subprocess.run([sys.executable, "-c", FLIPS, "0", "5000"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert 2000 < int(done.stdout) < 5000
