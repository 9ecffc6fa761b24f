"""The examples run as they are, and what they print is worth printing."""

import re
import runpy
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[1] / "examples"


@pytest.fixture
def run(tmp_path, monkeypatch, capsys):
    """A function that runs an example in an empty folder and returns what it prints."""
    monkeypatch.chdir(tmp_path)

    def run(name):
        runpy.run_path(str(EXAMPLES / name), run_name="__main__")
        return capsys.readouterr().out

    return run


def percentages(pattern, text):
    """Return the numbers that the groups of a pattern find."""
    found = re.search(pattern, text)
    assert found, text
    return [float(number) for number in found.groups()]


def test_crowd_votes(run):
    out = run("crowd_votes.py")
    assert "Votes: 400 tasks, 5 workers, 1200 votes, 10 classes" in out
    workers = {name: int(share) for name, share in re.findall(r"(\w+) agrees with .* on (\d+)%", out)}
    assert max(workers, key=workers.get) == "ann"
    assert min(workers, key=workers.get) == "eve"
    majority, learned = percentages(r"right labels of the 400 items +([\d.]+)% +([\d.]+)%", out)
    assert learned > majority + 5
    majority, learned = percentages(r"right predictions of 400 new ones +([\d.]+)% +([\d.]+)%", out)
    assert learned > majority
    assert learned > 85
    given, kept = percentages(r"among the votes of ([\d.]+)%, and among those kept of ([\d.]+)%", out)
    assert 90 < kept <= given < 100
    assert len(re.findall(r"^\d+ +\d, \d, \d +\d.*\(0\.\d\d\)|\(1\.00\)", out, re.MULTILINE)) == 8


def test_captions(run, tmp_path):
    out = run("captions.py")
    assert "section: 5 categories, one of them for" in out
    before, after = percentages(r"faces with a caption: ([\d.]+) names each, ([\d.]+) kept", out)
    assert before > 3 > 2 > after
    (lost,) = percentages(r"the right name is lost for ([\d.]+)%", out)
    assert lost < 5
    low, high = percentages(r"the audit guesses ([\d.]+)% to ([\d.]+)%", out)
    assert low <= lost <= high < 30
    assert re.findall(r"cannot be told apart: (.*)", out) == ["Ada Quist and Ben Quist"]
    assert percentages(r"faces with a caption: ([\d.]+)% named right", out)[0] > 85
    assert percentages(r"faces without one: ([\d.]+)% named right", out)[0] > 80
    (twins,) = percentages(r"faces with a caption: .* by guessing, ([\d.]+)%", out)
    assert 10 < twins < 90  # nothing can tell them apart
    size, inside = percentages(r"sets of ([\d.]+) names .* hold the right one for ([\d.]+)%", out)
    assert size < 3
    assert inside > 80
    assert "the loaded model predicts the same: True" in out
    assert {path.name for path in tmp_path.iterdir()} == {"captions-model", "captions.html"}
    assert "Faces in captions" in (tmp_path / "captions.html").read_text(encoding="utf-8")


def test_make_birds(run, tmp_path):
    assert "birds.csv: 150 rows, columns id, weight, wing, colour, candidates, label" in run("make_birds.py")
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    assert before.keys() == {"birds.csv", "new-birds.csv", "measures.csv", "votes.csv", "label-studio.json"}
    run("make_birds.py")
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before


def test_make_shapes(run, tmp_path):
    pytest.importorskip("PIL", reason="needs pillow")
    assert "shapes.csv: 120 rows" in run("make_shapes.py")
    before = {path: path.read_bytes() for path in tmp_path.rglob("*.*")}
    assert len(before) == 1 + 120 + 12
    run("make_shapes.py")
    assert {path: path.read_bytes() for path in tmp_path.rglob("*.*")} == before


@pytest.mark.parametrize("path", sorted(EXAMPLES.glob("*.py")), ids=lambda path: path.name)
def test_examples_are_short_and_say_how_to_run_them(path):
    text = path.read_text(encoding="utf-8")
    assert len(text.splitlines()) < 100
    assert f"``python examples/{path.name}``" in text
