"""The report's section on annotators."""

import numpy as np
import pytest

from candidly import PartialLabelClassifier, from_annotations, report
from candidly.report import saved
from candidly.report.facts import ReportFacts


@pytest.fixture(scope="module")
def facts():
    rng = np.random.default_rng(0)
    y = rng.integers(3, size=120)
    X = np.eye(3)[y] + rng.normal(size=(120, 3)) / 5
    table = {"ann": y.tolist(), "<b>bob</b>": y.tolist(), "eve": np.where(y == 1, 2, y).tolist()}
    votes = from_annotations(table, columns=list(table)).with_classes(["cat", "dog", "<i>owl</i>"])
    return report.summarise(PartialLabelClassifier(max_epochs=5, folds=2, random_state=0).fit(X, votes))


def test_annotators_are_listed_by_name(facts, tmp_path):
    assert facts.annotators[0]["name"] == "eve"
    confusion = facts.annotators[0]["confusions"][0]
    assert (facts.classes[confusion["true"]], facts.classes[confusion["given"]]) == ("dog", "<i>owl</i>")
    assert ReportFacts.from_json(facts.to_json()) == facts
    report.write(facts, tmp_path / "page.html")
    page = (tmp_path / "page.html").read_text(encoding="utf-8")
    section = page[page.index('<section id="annotators">') : page.index('<section id="doubtful">')]
    assert "&lt;b&gt;bob&lt;/b&gt;" in section
    assert "<b>bob" not in page
    assert "<i>owl" not in page
    assert any("360 votes were combined" in line for line in facts.words)


def test_reports_of_models_without_votes_have_no_section(facts, tmp_path):
    old = facts.to_json()
    del old["annotators"]
    loaded = ReportFacts.from_json(saved._upgrade(old))
    assert loaded.annotators == []
    report.write(loaded, tmp_path / "page.html")
    assert 'id="annotators"' not in (tmp_path / "page.html").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("name", "value"), [("accuracy", [0.5, 0.6, 0.7]), ("votes", 0), ("agreement", 2), ("confusions", [{"true": 9}])]
)
def test_damaged_annotators_are_refused(facts, name, value):
    damaged = facts.to_json()
    damaged["annotators"][0][name] = value
    with pytest.raises(ValueError, match="the facts are damaged"):
        ReportFacts.from_json(damaged)


def test_a_chosen_label_need_not_be_a_candidate(facts):
    outside = facts.to_json()
    row = outside["doubtful"][0]
    other = next(j for j in range(3) if j not in row["candidates"])
    row |= {"predicted": other, "outside": other, "outside_score": 0.6}
    assert ReportFacts.from_json(outside).doubtful[0]["predicted"] == other
    row |= {"outside": None, "outside_score": None}
    with pytest.raises(ValueError, match="predicted"):
        ReportFacts.from_json(outside)
