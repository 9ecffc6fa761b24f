"""The report's facts beside a model, in the file of this version and in that of 0.1."""

import json

import pytest

from candidly.report import saved
from tests.report.made import birds

FACTS = birds(rows=60, epochs=3, doubtful=5)


@pytest.mark.parametrize("name", ["report.json", "findings.json"])
def test_facts_are_read_from_either_file(name, tmp_path):
    (tmp_path / name).write_bytes(saved.to_bytes(FACTS))
    assert saved.read(tmp_path) == FACTS


def test_the_new_file_is_preferred(tmp_path):
    (tmp_path / "report.json").write_bytes(saved.to_bytes(FACTS))
    (tmp_path / "findings.json").write_text("{}")
    assert saved.read(tmp_path) == FACTS


@pytest.mark.parametrize("name", ["report.json", "findings.json"])
def test_damaged_files_are_refused_by_name(name, tmp_path):
    (tmp_path / name).write_text(json.dumps(FACTS.to_json() | {"rows": -1}))
    with pytest.raises(ValueError, match=rf"{name} cannot be read: the facts are damaged: rows is -1"):
        saved.read(tmp_path)


def test_a_missing_file_says_what_writes_it(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"report.json does not exist; `candidly fit` writes it"):
        saved.read(tmp_path)
