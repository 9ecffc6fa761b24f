"""Streams: one result per file; finished files are kept, other settings and files refused; shards share the work."""

import json
import os
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from candidly.tables import files
from candidly.tables.streams import Rows, Stream, read_manifest


def write_parts(folder: Path, sizes: list[int], suffix: str = ".parquet") -> str:
    folder.mkdir(exist_ok=True)
    start = 0
    for i, size in enumerate(sizes):
        table = pa.table({"x": pa.array(range(start, start + size), pa.int64())})
        if size or suffix == ".parquet":
            files.write(table, folder / f"part-{i}{suffix}")
        else:
            (folder / f"part-{i}{suffix}").write_text("x\n")
        start += size
    return f"{folder}/part-*{suffix}"


def double(rows: Rows) -> tuple[Any, dict[str, Any]]:
    values = rows.table.column("x").to_pylist()
    assert values[0] == rows.first
    return pa.table({"twice": [2 * value for value in values]}), {"rows": len(values), "sum": sum(values)}


def open_stream(source: str, out: Path, **more: Any) -> Stream:
    return Stream.open(source, out, command="double", settings={"factor": 2} | more.pop("settings", {}), **more)


@pytest.mark.parametrize("suffix", [".parquet", ".csv", ".arrow"])
def test_results_have_the_names_and_order_of_the_files(tmp_path: Path, suffix: str) -> None:
    source = write_parts(tmp_path / "in", [3, 5, 2], suffix)
    manifest = open_stream(source, tmp_path / "out").run(double, facts={"note": 1})
    found = [files.read(tmp_path / "out" / f"part-{i}{suffix}").column("twice").to_pylist() for i in range(3)]
    assert [value for values in found for value in values] == list(range(0, 20, 2))
    assert manifest["totals"] == {"rows": 10, "sum": 45}
    assert manifest["facts"] == {"note": 1}
    assert manifest == read_manifest(tmp_path / "out")
    assert [one["result"]["rows"] for one in manifest["files"]] == [3, 5, 2]


def test_finished_files_are_kept_and_missing_ones_written_again(tmp_path: Path) -> None:
    source = write_parts(tmp_path / "in", [3, 5, 2])
    open_stream(source, tmp_path / "out").run(double)
    before = {path.name: path.read_bytes() for path in (tmp_path / "out").glob("*.*")}
    (tmp_path / "out" / "part-1.parquet").unlink()
    seen: list[str] = []

    def step(rows: Rows) -> tuple[Any, dict[str, Any]]:
        seen.append(rows.part.name)
        return double(rows)

    open_stream(source, tmp_path / "out").run(step)
    assert seen == ["part-1.parquet"]
    assert {path.name: path.read_bytes() for path in (tmp_path / "out").glob("*.*")} == before


def test_files_without_rows_have_no_result(tmp_path: Path) -> None:
    for suffix in (".parquet", ".csv"):
        source = write_parts(tmp_path / "in", [3, 0, 2], suffix)
        manifest = open_stream(source, tmp_path / f"out{suffix}").run(double)
        assert [one["result"] is None for one in manifest["files"]] == [False, True, False]
        assert manifest["totals"]["rows"] == 5
        open_stream(source, tmp_path / f"out{suffix}").run(lambda _: pytest.fail("all is finished"))
    with pytest.raises(ValueError, match="has no rows; pass at least one"):
        open_stream(write_parts(tmp_path / "none", [0, 0]), tmp_path / "nothing")


def test_shards_share_the_files_and_the_last_one_writes_the_whole_manifest(tmp_path: Path) -> None:
    source = write_parts(tmp_path / "in", [3, 5, 2, 1, 4])
    for i in (2, 1, 3):
        assert not (tmp_path / "out" / "_manifest.json").exists()
        open_stream(source, tmp_path / "out", shard=f"{i}/3").run(double)
    second = json.loads((tmp_path / "out" / "_manifest-2-of-3.json").read_text())
    assert [one["file"]["name"] for one in second["files"]] == ["part-1.parquet", "part-4.parquet"]
    open_stream(source, tmp_path / "alone").run(double)
    assert read_manifest(tmp_path / "out") == read_manifest(tmp_path / "alone")
    for i in range(5):
        name = f"part-{i}.parquet"
        assert (tmp_path / "out" / name).read_bytes() == (tmp_path / "alone" / name).read_bytes()


@pytest.mark.parametrize("shard", ["0/3", "4/3", "3", "a/b", "1/0"])
def test_a_wrong_shard_is_refused(tmp_path: Path, shard: str) -> None:
    source = write_parts(tmp_path / "in", [3])
    with pytest.raises(ValueError, match=r"shard is .*; give its number, from 1, and the number of shards"):
        open_stream(source, tmp_path / "out", shard=shard)


def test_other_settings_and_files_are_refused(tmp_path: Path) -> None:
    source, out = write_parts(tmp_path / "in", [3, 5]), tmp_path / "out"
    open_stream(source, out).run(double)
    with pytest.raises(ValueError, match="in which factor was 2, and now it is 3; name a new folder"):
        open_stream(source, out, settings={"factor": 3})
    with pytest.raises(ValueError, match="in which more was null, and now it is 1"):
        open_stream(source, out, settings={"more": 1})
    with pytest.raises(ValueError, match="holds results of `candidly double`"):
        Stream.open(source, out, command="halve", settings={})
    os.utime(tmp_path / "in" / "part-1.parquet", ns=(0, 5))
    with pytest.raises(ValueError, match=r"was begun before part-1\.parquet was changed"):
        open_stream(source, out)
    (tmp_path / "in" / "part-1.parquet").unlink()
    with pytest.raises(ValueError, match=r"was begun before part-1\.parquet was removed"):
        open_stream(source, out)


def test_folders_that_are_not_apart_are_refused(tmp_path: Path) -> None:
    source = write_parts(tmp_path / "in", [3])
    with pytest.raises(ValueError, match=r"lies in .*/in, where results are written; name another folder"):
        open_stream(source, tmp_path / "in")
    with pytest.raises(ValueError, match=r"would also match the results in"):
        open_stream(f"{tmp_path}/*/part-*.parquet", tmp_path / "out")
    with pytest.raises(ValueError, match=r"would also match the results in"):
        open_stream(f"{tmp_path}/**/*.parquet", tmp_path / "deep" / "out")
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "letter.txt").write_text("")
    with pytest.raises(ValueError, match=r"holds 'letter\.txt', which is not a result of this stream"):
        open_stream(source, tmp_path / "mine")
    with pytest.raises(ValueError, match="is a file; name a folder"):
        open_stream(source, tmp_path / "mine" / "letter.txt")


def test_a_file_with_other_columns_is_named(tmp_path: Path) -> None:
    source = write_parts(tmp_path / "in", [3, 4])
    files.write(pa.table({"y": [1]}), tmp_path / "in" / "part-2.parquet")
    with pytest.raises(ValueError, match=r"part-2\.parquet lacks the columns 'x' and has the columns 'y' in addition"):
        open_stream(source, tmp_path / "out")


def test_files_in_several_folders_keep_their_folders(tmp_path: Path) -> None:
    for day in ("day=1", "day=2"):
        (tmp_path / "in" / day).mkdir(parents=True)
        files.write(pa.table({"x": [0]}), tmp_path / "in" / day / "part.parquet")
    step = lambda rows: (rows.table, {"rows": 1})  # noqa: E731
    Stream.open(f"{tmp_path}/in/*/*.parquet", tmp_path / "out", command="copy", settings={}).run(step)
    assert (tmp_path / "out" / "day=2" / "part.parquet").is_file()


def test_a_warning_is_given_once(tmp_path: Path, recwarn: pytest.WarningsRecorder) -> None:
    from candidly.messages import warn

    def step(rows: Rows) -> tuple[Any, dict[str, Any]]:
        warn(f"X has {rows.first} strange values")
        return double(rows)

    open_stream(write_parts(tmp_path / "in", [3, 5, 2]), tmp_path / "out").run(step)
    texts = [str(one.message) for one in recwarn]
    assert texts == [f"{tmp_path}/in/part-0.parquet has 0 strange values", "2 more blocks of rows caused such warnings"]


def test_two_processes_do_not_write_one_shard(tmp_path: Path) -> None:
    stream = open_stream(write_parts(tmp_path / "in", [3]), tmp_path / "out")

    def step(rows: Rows) -> tuple[Any, dict[str, Any]]:
        with pytest.raises(ValueError, match="another process writes shard 1/1"):
            stream.run(double)
        return double(rows)

    stream.run(step)
