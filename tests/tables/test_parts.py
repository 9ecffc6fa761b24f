"""Tables in several files: which files, in which order, in which blocks; what is read and written equals the whole."""

import gzip
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from candidly.tables import delimited, files, parts

SUFFIXES = [".csv", ".tsv", ".csv.gz", ".parquet", ".arrow"]


def table(n: int) -> pa.Table:
    rng = np.random.default_rng(0)
    words = ["plain", "a,b", 'say "hi"', "two\nlines", "tab\there", "=1+1", ""]
    return pa.table(
        {
            "id": [f"{i:04d}" for i in range(n)],
            "weight": pa.array([None if i % 7 == 3 else float(v) for i, v in enumerate(rng.normal(size=n))]),
            "count": np.arange(n),
            "word": [words[i % len(words)] for i in range(n)],
        }
    )


def test_parts_are_a_file_a_folder_or_a_pattern(tmp_path: Path) -> None:
    for name in ("b.csv", "a.csv.gz", "_manifest.csv", ".hidden.csv", "notes.txt", "deep/c.csv"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("x\n1\n")
    names = [part.name for part in parts.find_parts(tmp_path)]
    assert names == ["a.csv.gz", "b.csv"]
    assert parts.find_parts(tmp_path / "b.csv") == [tmp_path / "b.csv"]
    assert [one.name for one in parts.find_parts(f"{tmp_path}/**/*.csv")] == ["b.csv", "c.csv"]
    (tmp_path / "z.parquet").write_bytes(b"")
    with pytest.raises(ValueError, match=r"a\.csv\.gz and z\.parquet, of different formats"):
        parts.find_parts(tmp_path)
    with pytest.raises(FileNotFoundError, match=r"no file matches .*/q\*; check the pattern"):
        parts.find_parts(f"{tmp_path}/q*")
    with pytest.raises(FileNotFoundError, match="holds no table"):
        parts.find_parts(_empty(tmp_path))
    with pytest.raises(FileNotFoundError, match="does not exist; name a file, a folder or a pattern"):
        parts.find_parts(tmp_path / "none.csv")


def _empty(folder: Path) -> Path:
    (folder / "empty").mkdir()
    return folder / "empty"


@pytest.mark.parametrize("suffix", SUFFIXES)
@pytest.mark.parametrize("rows", [1, 7, 64, 1000])
def test_blocks_together_are_the_whole_file(
    tmp_path: Path, suffix: str, rows: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(delimited, "_PIECE", 300)  # bytes of text at a time
    path = tmp_path / f"t{suffix}"
    files.write(table(200), path)
    whole = files.read(path, texts=["id"])
    blocks = list(parts.read_blocks(path, rows=rows, texts=["id"]))
    assert max(block.num_rows for block in blocks) <= rows
    assert (parts.count_rows(path), parts.column_names(path)) == (200, whole.column_names)
    assert pa.concat_tables(blocks, promote_options="permissive").combine_chunks().equals(whole.combine_chunks())
    some = list(parts.read_blocks(path, columns=["count", "id", "none"], texts=["id"]))
    assert some[0].column_names == ["id", "count"]


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_a_file_written_in_blocks_equals_one_written_whole(tmp_path: Path, suffix: str) -> None:
    import hashlib

    content = table(100)
    with parts.BlockWriter(tmp_path / f"blocks{suffix}") as writer:
        for start in range(0, 100, 30):
            writer.write(content.slice(start, 30))
    files.write(content, tmp_path / f"whole{suffix}")
    data = (tmp_path / f"blocks{suffix}").read_bytes()
    assert (writer.rows, writer.bytes, writer.sha256) == (100, len(data), hashlib.sha256(data).hexdigest())
    blocks, whole = (files.read(tmp_path / f"{name}{suffix}", texts=["id"]) for name in ("blocks", "whole"))
    assert blocks.equals(whole)
    if suffix in (".csv", ".tsv"):
        assert data == (tmp_path / f"whole{suffix}").read_bytes()
    if suffix == ".csv.gz":
        assert gzip.decompress(data) == gzip.decompress((tmp_path / f"whole{suffix}").read_bytes())


def test_a_file_that_fails_is_not_written(tmp_path: Path) -> None:
    lists = table(3).append_column("more", pa.array([["a"], ["b"], [None]]))

    def write() -> None:
        with parts.BlockWriter(tmp_path / "t.csv") as writer:
            for row in range(3):
                writer.write(lists.slice(row, 1))

    with pytest.raises(ValueError, match="missing values, which CSV does not have"):
        write()
    assert list(tmp_path.iterdir()) == []


def test_a_file_of_text_without_rows_has_no_rows(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text("a,b\n")
    assert (parts.count_rows(path), parts.column_names(path)) == (0, ["a", "b"])


_cells = st.text(st.sampled_from('ab,"\n 1é'), max_size=5)


@pytest.mark.filterwarnings("ignore:.*look like rows of the table")
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.tuples(_cells, _cells, st.integers(0, 9)), min_size=1, max_size=12), st.integers(1, 40))
def test_csv_is_cut_between_rows_wherever_pieces_end(
    tmp_path: Path, rows: list[tuple[str, str, int]], piece: int
) -> None:
    first, second, last = zip(*rows, strict=True)
    path = tmp_path / "t.csv"
    files.write(pa.table({"a,": list(first), "b": list(second), "n": list(last)}), path)
    before = delimited._PIECE
    delimited._PIECE = piece
    try:
        blocks = pa.concat_tables(list(parts.read_blocks(path, texts=["a,", "b"])), promote_options="permissive")
    finally:
        delimited._PIECE = before
    whole = files.read(path, texts=["a,", "b"])
    assert parts.count_rows(path) == whole.num_rows
    assert blocks.combine_chunks().equals(whole.combine_chunks())


def test_lists_of_texts_are_read_across_row_groups(tmp_path: Path) -> None:
    import pyarrow.parquet as pq

    lists = pa.table({"tags": [["cat", "dog"], ["owl"], ["dog"], ["wren", "owl"], ["cat"]]})
    pq.write_table(lists, tmp_path / "t.parquet", row_group_size=2)
    assert files.read(tmp_path / "t.parquet").to_pylist() == lists.to_pylist()
    blocks = list(parts.read_blocks(tmp_path / "t.parquet", rows=3))
    assert pa.concat_tables(blocks).to_pylist() == lists.to_pylist()


def test_raw_cells_are_those_of_the_file(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text("id,n\n'=1, 01\n,NA\n")
    (block,) = parts.read_blocks(path, raw=True)
    assert block.to_pylist() == [{"id": "'=1", "n": " 01"}, {"id": "", "n": "NA"}]


def test_truth_values_and_numbers_in_one_column_are_refused_in_any_block(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(delimited, "_PIECE", 8)
    path = tmp_path / "t.csv"
    path.write_text("a,b\n1,1\n0,1\ntrue,1\nfalse,1\n")
    assert sum(block.num_rows for block in parts.read_blocks(path)) == 4
    path.write_text("a,b\n1,1\n5,1\ntrue,1\nfalse,1\n")
    with pytest.raises(ValueError, match="column 'a' has true and false from row 2 on, and numbers before"):
        list(parts.read_blocks(path))


def test_errors_name_rows_of_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(delimited, "_PIECE", 8)
    path = tmp_path / "t.csv"
    path.write_bytes(b"a,b\n1,x\n2,y\n3,\xff\n")
    with pytest.raises(ValueError, match=r"t.csv: row 2 is not UTF-8 in column 'b'"):
        list(parts.read_blocks(path))
    path.write_text("a,b\n1,x\n2,y\n3\n")
    for read in (parts.count_rows, lambda path: list(parts.read_blocks(path))):
        with pytest.raises(ValueError, match=r"t.csv is not a table: line 4 has 1 cells, the header 2"):
            read(path)
    path.write_text('a,b\n1,x\n2,"y\n3,z\n')
    with pytest.raises(ValueError, match="is not closed"):
        parts.count_rows(path)
    with pytest.raises(ValueError, match="is a quote not closed"):
        list(parts.read_blocks(path))


def test_a_large_row_group_is_read_in_blocks_within_the_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "t.parquet"
    files.write(pa.table({"word": ["x" * 1000] * 5000}), path)
    monkeypatch.setenv("CANDIDLY_MAX_BYTES", "300000")
    with pytest.raises(ValueError, match="takes at least"):
        files.read(path)
    assert sum(block.num_rows for block in parts.read_blocks(path, rows=200)) == 5000
    with pytest.raises(ValueError, match="takes at least"):
        list(parts.read_blocks(path, rows=1000))
