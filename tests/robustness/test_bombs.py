"""Small files that would take a lot of memory are refused before they do."""

import gzip
import io
import os
import struct
import subprocess
import sys
import zipfile
import zlib

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest
import scipy.io
import scipy.sparse
from pyarrow import feather

MIB = 2**20
SMALL = {"partial_target": np.eye(2), "target": np.eye(2)}


def mat_of_empty_axis(path):
    """Rows that take no byte, because they have no columns."""
    huge = scipy.sparse.csc_matrix((2**30, 0))
    scipy.io.savemat(path, {"features": huge, "p_labels": huge, "logitlabels": huge})


def mat_of_few_entries(path):
    scipy.io.savemat(path, SMALL | {"data": scipy.sparse.csc_matrix(([1.0], ([0], [0])), (2**14, 2**14))})


def mat_of_zeros(path):
    """A compressed matrix of bytes that claims to be one of numbers in float64."""
    shape = (2**12, 2**13)
    head = struct.pack("<4I", 6, 8, 6, 0) + struct.pack("<II2i", 5, 8, *shape) + struct.pack("<II8s", 1, 4, b"data")
    size = len(head) + 8 + shape[0] * shape[1]
    packer = zlib.compressobj(9)
    packed = packer.compress(struct.pack("<II", 14, size) + head + struct.pack("<II", 2, shape[0] * shape[1]))
    packed += b"".join(packer.compress(bytes(MIB)) for _ in range(shape[0] * shape[1] // MIB)) + packer.flush()
    stream = io.BytesIO()
    scipy.io.savemat(stream, SMALL)
    path.write_bytes(stream.getvalue() + struct.pack("<II", 15, len(packed)) + packed)


def npz_of_zeros(path):
    np.savez_compressed(path, X=np.zeros((2**13, 2**13 + 1), np.uint8), S=np.eye(2, dtype=bool))


def npz_of_numbers(path):
    """Bytes that would become numbers in float64."""
    np.savez_compressed(path, X=np.zeros((2**15, 2**10), np.uint8), S=np.eye(2, dtype=bool))


def npz_of_empty_axis(path):
    """Classes without rows."""
    np.savez(path, X=np.zeros((0, 1)), S=np.zeros((0, 2**30), bool))


def npz_of_claims(path):
    stream = io.BytesIO()
    np.lib.format.write_array_header_1_0(stream, {"descr": "<f8", "fortran_order": False, "shape": (2**30, 1)})
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("X.npy", stream.getvalue())
        archive.writestr("S.npy", stream.getvalue())


def parquet_of_zeros(path):
    zeros = pa.array(np.zeros(2**20))
    table = pa.table({f"x{k}": pa.chunked_array([zeros] * 4) for k in range(8)})
    pyarrow.parquet.write_table(table, path, compression="zstd")


def parquet_of_one_text(path):
    """A text that is stored once and stands in every row."""
    indices = pa.array(np.zeros(2**14, np.int32))
    text = pa.DictionaryArray.from_arrays(indices, pa.array(["x" * 2**16]))
    pyarrow.parquet.write_table(pa.table({"a": text}), path, store_schema=False)


def parquet_of_one_beginning(path):
    """Texts that differ at the end only."""
    texts = [f"{'x' * 2**19}{i}" for i in range(140)]
    encoding = {"use_dictionary": False, "column_encoding": {"a": "DELTA_BYTE_ARRAY"}}
    pyarrow.parquet.write_table(pa.table({"a": texts}), path, **encoding)


def parquet_of_one_list(path):
    zeros = pa.array(np.zeros(2**25, np.int8))
    pyarrow.parquet.write_table(pa.table({"a": pa.ListArray.from_arrays([0, len(zeros)], zeros)}), path)


def parquet_of_nothing(path):
    pyarrow.parquet.write_table(pa.table({"a": pa.nulls(2**26)}), path)


def arrow_of_nothing(path):
    with pa.ipc.new_file(path, pa.schema({"a": pa.null()})) as writer:
        writer.write_table(pa.table({"a": pa.nulls(2**27)}))


def arrow_of_one_text(path):
    text = pa.DictionaryArray.from_arrays(pa.array(np.zeros(2**14, np.int8)), pa.array(["x" * 2**16]))
    with pa.ipc.new_file(path, pa.schema({"a": text.type})) as writer:
        writer.write_table(pa.table({"a": text}))


def arrow_of_zeros(path):
    options = pa.ipc.IpcWriteOptions(compression="zstd")
    with pa.ipc.new_stream(path, pa.schema({"a": pa.float64()}), options=options) as writer:
        writer.write_table(pa.table({"a": np.zeros(2**24)}))


def feather_of_zeros(path):
    feather.write_feather(pa.table({"a": pa.chunked_array([np.zeros(2**20)] * 16)}), path, chunksize=2**24)


def csv_of_zeros(path):
    with gzip.open(path, "wb") as file:
        file.write(b"a,candidates\n")
        for _ in range(64):
            file.write(b"0,0\n" * (MIB // 4))


def csv_of_cells(path):
    """One byte per cell, which takes eight as a number."""
    with gzip.open(path, "wb") as file:
        file.write(b",".join(b"%d" % k for k in range(1000)) + b"\n")
        for _ in range(40):
            file.write((b"1," * 999 + b"1\n") * 512)


BOMBS = {
    ".mat": (mat_of_empty_axis, mat_of_few_entries, mat_of_zeros),
    ".npz": (npz_of_zeros, npz_of_numbers, npz_of_empty_axis, npz_of_claims),
    ".parquet": (
        *(parquet_of_zeros, parquet_of_one_text, parquet_of_one_beginning),
        *(parquet_of_one_list, parquet_of_nothing),
    ),
    ".arrow": (arrow_of_nothing, arrow_of_one_text, arrow_of_zeros),
    ".feather": (feather_of_zeros,),
    ".csv.gz": (csv_of_zeros, csv_of_cells),
}
LIMIT = 64 * MIB
READ = """
import resource
import sys

import scipy.io
from candidly.data import load
from candidly.tables import files

path = sys.argv[1]
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
try:
    files.read(path) if path.endswith(tuple(files.SUFFIXES)) else load(path)
except ValueError as error:
    print(error)
print((resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) >> 10)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="the unit of ru_maxrss differs")
@pytest.mark.parametrize("make", [make for some in BOMBS.values() for make in some], ids=lambda make: make.__name__)
def test_bombs_take_little_memory(tmp_path, make):
    path = tmp_path / f"bomb{next(suffix for suffix, some in BOMBS.items() if make in some)}"
    make(path)
    assert path.stat().st_size < MIB
    done = subprocess.run(
        [sys.executable, "-c", READ, str(path)],
        env=os.environ | {"CANDIDLY_MAX_BYTES": str(LIMIT)},
        capture_output=True,
        text=True,
        check=True,
    )
    message, peak = done.stdout.splitlines()
    assert message.startswith(str(path))
    assert "CANDIDLY_MAX_BYTES" in message or make in (mat_of_empty_axis, npz_of_claims, npz_of_empty_axis)
    assert int(peak) < 3 * LIMIT / MIB


def test_honest_files_pass(tmp_path):
    """What expands a hundredfold passes by default if it is not large."""
    from candidly.tables import files

    parquet_of_zeros(tmp_path / "a.parquet")
    assert files.read(tmp_path / "a.parquet").num_rows == 2**22
