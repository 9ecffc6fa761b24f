"""The report's facts in a saved model, in the file of this version and in that of 0.1."""

import json

import pytest

from candidly.report import saved
from candidly.report.rendering import render
from candidly.store import states
from tests.report.made import birds

FACTS = birds(rows=60, epochs=3, doubtful=5)


def save(folder, **more):
    states.write_folder(folder, {}, {}, more={f"{name}.json": content for name, content in more.items()})


@pytest.mark.parametrize("name", ["report", "findings"])
def test_facts_are_read_from_either_file(name, tmp_path):
    save(tmp_path, **{name: saved.to_bytes(FACTS)})
    assert saved.read(tmp_path) == FACTS


def test_the_new_file_is_preferred(tmp_path):
    save(tmp_path, report=saved.to_bytes(FACTS), findings=b"{}")
    assert saved.read(tmp_path) == FACTS


@pytest.mark.parametrize("name", ["report", "findings"])
def test_damaged_files_are_refused_by_name(name, tmp_path):
    save(tmp_path, **{name: json.dumps(FACTS.to_json() | {"rows": -1}).encode()})
    with pytest.raises(ValueError, match=rf"{name}.json of .* cannot be read: the facts are damaged: rows is -1"):
        saved.read(tmp_path)


def test_a_missing_file_says_what_writes_it(tmp_path):
    save(tmp_path)
    with pytest.raises(FileNotFoundError, match=r"has no report; `candidly fit` saves one with the model"):
        saved.read(tmp_path)
    with pytest.raises(FileNotFoundError, match=r"model.json does not exist"):
        saved.read(tmp_path / "none")


def test_facts_of_version_0_1_are_read_and_drawn(tmp_path):
    facts = FACTS.to_json()
    for row in facts["doubtful"]:
        row["scores"] = [q for q, name in zip(row["scores"], row["candidates"], strict=True) if name in row["removed"]]
        for name in ("priority", "outside", "outside_score"):
            del row[name]
    for one in facts["reliability"]:
        one["confidence"] = one.pop("probability")
    lost = facts["truth"].pop("true_lost")
    facts["truth"] = {name: value for name, value in facts["truth"].items() if name != "outside"} | {
        "true_kept": 1 - lost
    }
    for name in ("known", "verified"):
        del facts["audit"][name]
    facts["audit"]["error"] = 0.071
    for level in facts["audit"]["levels"]:
        del level["check"], level["verified"]
    save(tmp_path, findings=json.dumps(facts).encode())
    found = saved.read(tmp_path)
    assert [row["priority"] for row in found.doubtful] == [1, 2, 3, 4, 5]
    assert [row["candidates"] for row in found.doubtful] == [row["candidates"] for row in FACTS.doubtful]
    assert {row["confidence"] for row in found.doubtful} == {None}
    assert found.reliability == FACTS.reliability
    assert found.truth == FACTS.truth | {"outside": 0, "true_lost": None}
    assert [level["lost"] for level in found.audit["levels"]] == [level["lost"] for level in FACTS.audit["levels"]]
    assert "not verified: check " in render(found)
