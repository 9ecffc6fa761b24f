"""What the benchmarks share: cells that several workers measure."""

import json
import re

import pytest

from benchmarks.cells import collect, read, share


def measure(name, number):
    if name == "odd":
        raise ValueError("this cell cannot be measured")
    return {"name": name, "number": number, "shown": str(number), "seconds": 0.0}


CELLS = [("even", 0), ("odd", 1), ("even", 2)]


@pytest.mark.parametrize("threads", [True, False], ids=["threads", "processes"])
def test_a_cell_that_fails_stops_neither_the_others_nor_goes_unnoticed(threads, tmp_path, capfd):
    (tmp_path / "even_0.lock").touch()  # of a process that was killed
    with pytest.raises(SystemExit, match=re.escape("1 of 3 cells failed, the next call tries again: odd 1")):
        share(CELLS, measure, tmp_path, jobs=1, minutes=1, threads=threads)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["even_0.json", "even_2.json"]
    said = capfd.readouterr()
    assert "this cell cannot be measured" in said.err
    assert "even 2 2 (0 s)" in said.out


def test_every_cell_is_measured_once(tmp_path):
    found = []

    def count(*cell):
        found.append(cell)
        return measure(*cell)

    cells = [("even", number) for number in range(40)]
    share(cells, count, tmp_path, jobs=4, minutes=1, threads=True)
    share(cells, count, tmp_path, jobs=4, minutes=1, threads=True)
    assert sorted(found) == cells
    collect(tmp_path, tmp_path / "results", lambda cell: f"{cell['number']:02}")
    assert [cell["number"] for cell in read(tmp_path / "results")] == list(range(40))


def test_no_cell_begins_after_its_time(tmp_path):
    share([("even", 0)], measure, tmp_path, jobs=1, minutes=-1, threads=True)
    assert not list(tmp_path.iterdir())


def test_results_are_one_line_per_cell(tmp_path):
    share([("even", 0), ("even", 2)], measure, tmp_path, jobs=1, minutes=1, threads=True)
    collect(tmp_path, tmp_path / "results", lambda cell: str(cell["number"]))
    lines = (tmp_path / "results").read_text(encoding="utf-8").splitlines()
    assert len(lines) == 4
    assert json.loads(lines[1].rstrip(","))["number"] == 0
