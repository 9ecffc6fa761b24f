import io
import zipfile

import numpy as np
import pytest

from candidly.data.readers import npz


@pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
def test_reads_what_numpy_saves(tmp_path, save):
    X = np.asfortranarray(np.arange(6.0).reshape(2, 3))
    save(tmp_path / "a.npz", X=X, y=np.array([1, 0]), names=np.array(["ä", "b"]), empty=np.zeros((0, 3)))
    arrays = npz.read(tmp_path / "a.npz", ["X", "names", "empty"], optional=["y", "z"])
    assert list(arrays) == ["X", "names", "empty", "y"]
    np.testing.assert_array_equal(arrays["X"], X)
    assert arrays["names"].tolist() == ["ä", "b"]
    assert arrays["empty"].shape == (0, 3)


def test_names_what_is_missing(tmp_path):
    np.savez(tmp_path / "a.npz", X=np.zeros(1))
    with pytest.raises(ValueError, match="has no array S, y; it holds X"):
        npz.read(tmp_path / "a.npz", ["X", "S", "y"])


@pytest.mark.parametrize("array", [np.array([{}], dtype=object), np.zeros(2, [("a", float)])])
def test_rejects_objects_and_records(tmp_path, array):
    np.savez(tmp_path / "a.npz", X=array)
    with pytest.raises(ValueError, match=r"a.npz: X has type .* not read"):
        npz.read(tmp_path / "a.npz", ["X"])


@pytest.mark.parametrize("damage", [lambda raw: b"", lambda raw: b"PK no zip", lambda raw: raw[:-30]])
def test_rejects_damaged_files(tmp_path, damage):
    path = tmp_path / "a.npz"
    np.savez(path, X=np.arange(100))
    path.write_bytes(damage(path.read_bytes()))
    with pytest.raises(ValueError, match=r"a.npz is not a readable .npz file"):
        npz.read(path, ["X"])


def test_rejects_changed_bytes(tmp_path):
    path = tmp_path / "a.npz"
    np.savez(path, X=np.full(100, 7, np.uint8))
    path.write_bytes(path.read_bytes().replace(bytes([7] * 50), bytes([8] * 50), 1))
    with pytest.raises(ValueError, match=r"a.npz is not a readable .npz file .*CRC"):
        npz.read(path, ["X"])


def member(shape, content):
    """An array whose header claims `shape`."""
    stream = io.BytesIO()
    np.lib.format.write_array_header_1_0(stream, {"descr": "|u1", "fortran_order": False, "shape": shape})
    return stream.getvalue() + content


@pytest.mark.parametrize("claimed", [(2**40,), (3,), (5,)])
def test_rejects_headers_that_cannot_be(tmp_path, claimed):
    with zipfile.ZipFile(tmp_path / "a.npz", "w") as archive:
        archive.writestr("X.npy", member(claimed, b"1234"))
    with pytest.raises(ValueError, match=r"a.npz: X is damaged: shape \(\d+,\) of type uint8 takes \d+ bytes"):
        npz.read(tmp_path / "a.npz", ["X"])


def raw_member(header, content=b"1234", version=b"\x01\x00"):
    """An array with a header as it stands there."""
    text = header.encode() + b"\n"
    return b"\x93NUMPY" + version + len(text).to_bytes(2, "little") + text + content


@pytest.mark.parametrize(
    ("header", "message"),
    [
        ("{'descr': '|u1', 'fortran_order': False, 'shape': (-4,)}", r"X is damaged: its shape is \(-4,\)"),
        ("{'descr': '|u1', 'fortran_order': False, 'shape': (-2, -2)}", "X is damaged: its shape"),
        ("{'descr': '|u1', 'fortran_order': False, 'shape': (True, 4)}", "X is damaged: its shape"),
        (f"{{'descr': '|u1', 'fortran_order': False, 'shape': (0, {2**63})}}", "X is damaged: its shape"),
        (f"{{'descr': '|u1', 'fortran_order': False, 'shape': (0, {2**62}, 8)}}", "X is "),
        ("{'descr': '|V0', 'fortran_order': False, 'shape': (10,)}", "X has type .*take no space"),
        ("{'descr': '<U0', 'fortran_order': False, 'shape': (10,)}", "X has type .*take no space"),
        ("{'descr': 7, 'fortran_order': False, 'shape': (4,)}", "X is not a readable array"),
        ("{'descr': ('|u1', 'x'), 'fortran_order': False, 'shape': (4,)}", "X is not a readable array"),
        ("{'descr': '|u1', 'fortran_order': False, 'shape': (4,)", "X is not a readable array"),
        ("{'descr': '''|u1, 'fortran_order': False, 'shape': (4,)}", "X is not a readable array"),
        ("(" * 900, "X is not a readable array"),
    ],
)
def test_rejects_headers_that_numpy_stumbles_over(tmp_path, header, message):
    with zipfile.ZipFile(tmp_path / "a.npz", "w") as archive:
        archive.writestr("X.npy", raw_member(header))
    with pytest.raises(ValueError, match=rf"a.npz: {message}"):
        npz.read(tmp_path / "a.npz", ["X"])


def test_rejects_other_versions(tmp_path):
    header = "{'descr': '|u1', 'fortran_order': False, 'shape': (4,)}"
    with zipfile.ZipFile(tmp_path / "a.npz", "w") as archive:
        archive.writestr("X.npy", raw_member(header, version=b"\x09\x00"))
    with pytest.raises(ValueError, match=r"a.npz: X is not a readable array"):
        npz.read(tmp_path / "a.npz", ["X"])


def test_rejects_encrypted_members(tmp_path):
    path = tmp_path / "a.npz"
    np.savez(path, X=np.arange(4))
    content = bytearray(path.read_bytes())
    content[content.rindex(b"PK\x01\x02") + 8] |= 1
    path.write_bytes(content)
    with pytest.raises(ValueError, match=r"a.npz: X is encrypted; save it with numpy.savez"):
        npz.read(path, ["X"])


def test_changed_bytes_raise_one_kind_of_error(tmp_path):
    path = tmp_path / "a.npz"
    np.savez_compressed(path, X=np.arange(4.0), S=np.eye(4, dtype=bool))
    content, generator, refused = path.read_bytes(), np.random.default_rng(0), 0
    for _ in range(2000):
        changed = bytearray(content)
        changed[generator.integers(len(changed))] = generator.integers(256)
        path.write_bytes(changed)
        try:
            npz.read(path, ["X", "S"])
        except ValueError:
            refused += 1
    assert refused > 500


def test_rejects_sizes_that_cannot_be(tmp_path):
    path = tmp_path / "a.npz"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("X.npy", member((2**31 - 200,), b"1234"))
    size, claimed = (number.to_bytes(4, "little") for number in (128 + 4, 2**31 - 200 + 128))
    content = path.read_bytes()
    assert content.count(size) == 2, "local header and directory"
    path.write_bytes(content.replace(size, claimed))
    with pytest.raises(ValueError, match=r"a.npz: X claims 2147483576 bytes in .*, which is impossible"):
        npz.read(path, ["X"])


def test_rejects_no_array(tmp_path):
    with zipfile.ZipFile(tmp_path / "a.npz", "w") as archive:
        archive.writestr("X.npy", b"no array at all")
    with pytest.raises(ValueError, match=r"a.npz: X is not a readable array"):
        npz.read(tmp_path / "a.npz", ["X"])


def test_rejects_other_compression(tmp_path):
    with zipfile.ZipFile(tmp_path / "a.npz", "w", zipfile.ZIP_BZIP2) as archive:
        archive.writestr("X.npy", member((4,), b"1234"))
    with pytest.raises(ValueError, match=r"a.npz: X is compressed in a way that numpy does not use"):
        npz.read(tmp_path / "a.npz", ["X"])


def test_missing_file(tmp_path):
    with pytest.raises(FileNotFoundError):
        npz.read(tmp_path / "a.npz", ["X"])
