"""`candidly fit` on tables in several files: in one process, and under torchrun."""

import os
import subprocess
import sys
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import candidly
from candidly import PartialLabelClassifier
from candidly.cli import main, reading
from candidly.cli import ranks as cli_ranks
from candidly.cli.options import ReadingOptions
from candidly.engine.ranks import Group

CUTS = (0, 30, 31, 140, 240)


@pytest.fixture
def table(tmp_path: Path) -> pa.Table:
    """A table, which is also in the file whole.csv and in the files of the folders parquet and csv."""
    n, rng = CUTS[-1], np.random.default_rng(0)
    y = rng.integers(3, size=n)
    X = 3 * rng.normal(size=(3, 4))[y] + rng.normal(size=(n, 4))
    S = (rng.random((n, 3)) < 0.3) | (np.arange(3) == y[:, None])
    names = np.array(["ant", "bee", "cat"])
    rows = {f"x{j}": X[:, j] for j in range(4)} | {"colour": np.where(y > 0, "red", "blue"), "id": np.arange(n)}
    whole = pa.table(rows | {"labels": ["|".join(names[row]) for row in S]})
    (tmp_path / "parquet").mkdir()
    (tmp_path / "csv").mkdir()
    whole.to_pandas().to_csv(tmp_path / "whole.csv", index=False)
    for k, (start, stop) in enumerate(pairwise(CUTS)):
        part = whole.slice(start, stop - start)
        pq.write_table(part, tmp_path / "parquet" / f"part-{k}.parquet", row_group_size=50)
        part.to_pandas().to_csv(tmp_path / "csv" / f"part-{k}.csv", index=False)
    return whole


@pytest.mark.parametrize("source", ["parquet", "csv", "parquet/*.parquet", "whole.csv"])
@pytest.mark.parametrize("ranks", [1, 2, 3, 7])
def test_shares_are_consecutive_and_hold_every_row_once(source: str, ranks: int, table: Any, tmp_path: Path) -> None:
    options = ReadingOptions(id="id")
    shares = [reading.read_share(str(tmp_path / source), "labels", options, rank, ranks) for rank in range(ranks)]
    assert [int(one) for share in shares for one in share.ids] == list(range(CUTS[-1]))
    sizes = [len(share.candidates) for share in shares]
    assert max(sizes) - min(sizes) <= 1
    assert [row for share in shares for row in share.candidates.decode()] == [
        tuple(text.split("|")) for text in table["labels"].to_pylist()
    ]


@pytest.mark.usefixtures("table")
def test_more_processes_than_rows_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="240 rows for 200 processes; each needs at least 2, so start fewer"):
        reading.read_share(str(tmp_path / "csv"), "labels", ReadingOptions(), 0, 200)
    with pytest.raises(ValueError, match="standard input, which several processes cannot share"):
        reading.read_share("-", "labels", ReadingOptions(), 0, 2)


@pytest.mark.usefixtures("table")
def test_several_files_are_one_table(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for source, out in (("parquet", "a"), ("whole.csv", "b")):
        command = ["fit", str(tmp_path / source), "--candidates", "labels", "--id", "id", "--epochs", "2"]
        cleaned = ["--cleaned", str(tmp_path / f"{out}.csv"), "--out", str(tmp_path / out), "--device", "cpu"]
        main([*command, *cleaned])
    assert (tmp_path / "a.csv").read_bytes() == (tmp_path / "b.csv").read_bytes()
    assert "240 rows, 3 classes" in capsys.readouterr().out


@pytest.mark.parametrize("command", ["clean", "audit"])
@pytest.mark.usefixtures("table")
def test_other_commands_are_for_one_process(
    command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(cli_ranks, "find_group", lambda: Group(0, 2, alone=False))
    out = ["--out", str(tmp_path / "out.csv")] if command == "clean" else []
    with pytest.raises(SystemExit):
        main([command, str(tmp_path / "whole.csv"), "--candidates", "labels", *out])
    assert f"`candidly {command}` works in one process, and torchrun started 2" in capsys.readouterr().err


def test_cleaned_rows_of_several_processes_are_a_folder() -> None:
    group = Group(1, 2, alone=False)
    assert cli_ranks._place("cleaned/", group) == Path("cleaned/part-2-of-2.parquet")
    for place in ("-", "cleaned.csv"):
        with pytest.raises(ValueError, match="2 processes write their cleaned rows; name a folder"):
            cli_ranks._place(place, group)


def torchrun(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", "-m", "candidly"]
    source = str(Path(candidly.__file__).resolve().parents[1])
    environment = os.environ | {"OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": "", "PYTHONPATH": source}
    command += arguments
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=300)


@pytest.mark.usefixtures("table")
def test_torchrun_trains_one_model_on_all_rows(tmp_path: Path) -> None:
    options = ["--candidates", "labels", "--id", "id", "--epochs", "3", "--folds", "2"]
    done = torchrun(tmp_path, "fit", "parquet/*.parquet", *options, "--out", "model", "--cleaned", "cleaned")
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("240 rows, 3 classes") == 1  # only one process prints
    rows = [pq.read_table(tmp_path / "cleaned" / f"part-{k}-of-2.parquet") for k in (1, 2)]
    assert [one for part in rows for one in part["id"].to_pylist()] == list(range(240))
    classifier = PartialLabelClassifier.load(tmp_path / "model")
    assert classifier.classes_.tolist() == ["ant", "bee", "cat"]
    assert len(classifier.candidates_) == 240
    kept = [row for part in rows for row in part["kept"].to_pylist()]
    assert sorted(map(tuple, kept)) == sorted(classifier.candidates_.decode())
    refused = torchrun(tmp_path, "fit", "parquet", *options, "--method", "valen", "--out", "other")
    assert refused.returncode != 0
    assert "candidly: VALEN searches nearest neighbours among all rows" in refused.stderr
