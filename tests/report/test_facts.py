"""ReportFacts: JSON there and back, and everything that from_json refuses."""

import copy
import dataclasses
import json

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from candidly.cleaning import audit as audits
from candidly.cleaning.budget import Budget
from candidly.report.facts import HISTORY, ReportFacts
from tests.report.made import HOSTILE, audit, birds

FACTS = birds(rows=60, epochs=3, doubtful=5).to_json()
FIRST = next(i for i, row in enumerate(FACTS["doubtful"]) if row["removed"])


def changed(path, value):
    """Return the facts with a value replaced, or with a key more."""
    facts = copy.deepcopy(FACTS)
    place = facts
    for key in path[:-1]:
        place = place[key]
    place[path[-1]] = value
    return facts


def without(path):
    facts = copy.deepcopy(FACTS)
    place = facts
    for key in path[:-1]:
        place = place[key]
    del place[path[-1]]
    return facts


@pytest.mark.parametrize("truth", [True, False])
def test_json_there_and_back(truth):
    findings = birds(rows=60, epochs=3, doubtful=5, truth=truth)
    stored = json.loads(json.dumps(findings.to_json(), allow_nan=False))
    assert ReportFacts.from_json(stored) == findings


def test_hostile_names_come_back_as_they_were():
    findings = birds(rows=60, doubtful=5, classes=HOSTILE)
    assert ReportFacts.from_json(json.loads(json.dumps(findings.to_json()))).classes == HOSTILE


def test_findings_are_frozen_and_their_json_is_a_copy():
    findings = ReportFacts.from_json(FACTS)
    findings.to_json()["before"][0] = -1
    assert findings.before[0] >= 0
    with pytest.raises(dataclasses.FrozenInstanceError):
        findings.rows = 3


def test_what_may_be_absent():
    facts = changed(["truth"], None) | {"audit": None}
    facts |= {"history": {}, "doubtful": [], "reliability": [], "shown": [], "together": [], "removed": []}
    facts |= {"words": [], "features": [], "settings": {}}
    assert ReportFacts.from_json(facts).truth is None


def test_numbers_that_are_not_known():
    facts = changed(["truth"], {"rows": 0, "outside": 0, "accuracy": None, "true_lost": None, "wrong_removed": None})
    facts["history"]["loss"]["mean"][0] = None
    facts["reliability"][0]["accuracy"] = None
    assert ReportFacts.from_json(facts).truth["accuracy"] is None


@pytest.mark.parametrize("name", FACTS)
@pytest.mark.parametrize("value", [object(), b"x", {1, 2}, [[[]]], {"a": []}, -1, 1e400, float("nan"), True])
def test_no_field_takes_just_anything(name, value):
    with pytest.raises(ValueError, match="the facts are damaged") as caught:
        ReportFacts.from_json(changed([name], value))
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("facts", [None, [], 3, "text", {}, {**FACTS, "more": 1}, {**FACTS, 3: 1}])
def test_the_whole(facts):
    with pytest.raises(ValueError, match="the facts are damaged"):
        ReportFacts.from_json(facts)


@pytest.mark.parametrize(
    ("path", "value", "message"),
    [
        (["title"], 5, "title is 5"),
        (["title"], None, "title is None"),
        (["date"], "yesterday", "isoformat"),
        (["seconds"], -1.0, "seconds is -1.0"),
        (["seconds"], True, "seconds is True"),
        (["words"], ["a", 3], r"words\[1\] is 3"),
        (["settings", "alpha"], [0.1], r"settings\['alpha'\] is \[0.1\]"),
        (["settings", "alpha"], float("inf"), r"settings\['alpha'\] is inf"),
        (["settings", 3], 1, "a key of settings is 3"),
        (["classes"], ["a", "a"], "different values in classes is 1"),
        (["classes"], [], "length of classes is 0"),
        (["classes", 0], 3, r"classes\[0\] is 3"),
        (["rows"], 0, "rows is 0"),
        (["rows"], 10**20, "rows is 10"),
        (["rows"], 60.0, "rows is 60.0"),
        (["before", 0], 0, "the sum of before, which should be 60,"),
        (["changed"], 61, "changed is 61"),
        (["before"], [60], "length of before is 1"),
        (["after", 0], 59, "the sum of after"),
        (["after"], [0] * 13 + [60], "candidates before and after"),
        (["history", "temper"], {"mean": [], "low": [], "high": []}, "a key of history is 'temper'"),
        (["history", "loss"], {"mean": [], "low": []}, r"'high' in history\['loss'\] is 'missing'"),
        (["history", "loss", "low"], [1.0], r"epochs of loss is \[3, 1, 3\]"),
        (["history", "loss", "low", 0], "1", r"history\['loss'\]\['low'\]\[0\] is '1'"),
        (["history", "loss", "mean", 0], float("nan"), "is nan"),
        (["shown"], [0, 0], "different values in shown"),
        (["shown", 0], 14, r"shown\[0\] is 14"),
        (["shown", 0], -1, r"shown\[0\] is -1"),
        (["together"], [], "length of together is 0"),
        (["together", 0], [1], r"length of together\[0\] is 1"),
        (["removed", 0, 0], 61, r"removed\[0\]\[0\] is 61"),
        (["removed", 0, 0], 0.5, r"removed\[0\]\[0\] is 0.5"),
        (["doubtful", 0, "row"], 60, r"doubtful\[0\]\['row'\] is 60"),
        (["doubtful", 0, "id"], 7, r"doubtful\[0\]\['id'\] is 7"),
        (["doubtful", 0, "candidates"], [], r"length of doubtful\[0\]\['candidates'\] is 0"),
        (["doubtful", 0, "candidates"], [1, 1], "different values in doubtful"),
        (["doubtful", 0, "candidates"], [14], r"\['candidates'\]\[0\] is 14"),
        (["doubtful", FIRST, "scores"], [], r"\['scores'\] is \[\]"),
        (["doubtful", FIRST, "candidates"], FACTS["doubtful"][FIRST]["removed"], r"\['removed'\] is \["),
        (["doubtful", 0, "predicted"], 14, r"\['predicted'\] is 14"),
        (["doubtful", 0, "predicted"], None, r"\['predicted'\] is None"),
        (["doubtful", 0, "confidence"], 1.01, r"\['confidence'\] is 1.01"),
        (["doubtful", 0, "true"], "owl", r"\['true'\] is 'owl'"),
        (["doubtful", 0, "onclick"], 1, r"a key of doubtful\[0\] is 'onclick'"),
        (["reliability", 0, "low"], 0.9, r"reliability\[0\]\['low'\] is 0.9"),
        (["reliability", 0, "count"], -1, r"\['count'\] is -1"),
        (["reliability", 0, "covering"], 2, r"\['covering'\] is 2"),
        (["doubtful", FIRST, "scores", 0], 1.1, r"\['scores'\]\[0\] is 1.1"),
        (["audit"], {}, "in audit is 'missing'"),
        (["audit", "more"], 1, "a key of audit is 'more'"),
        (["audit", "levels"], [], r"length of audit\['levels'\] is 0"),
        (["audit", "levels"], FACTS["audit"]["levels"] * 21, r"length of audit\['levels'\] is 105"),
        (["audit", "levels"], FACTS["audit"]["levels"][::-1], r"order of audit\['levels'\] is \[0.2, 0.1"),
        (["audit", "levels"], FACTS["audit"]["levels"][:1] * 2, r"order of audit\['levels'\] is \[0.01, 0.01\]"),
        (["audit", "levels", 0, "alpha"], 0, r"\['alpha'\] is 0"),
        (["audit", "levels", 4, "alpha"], 1, r"\['alpha'\] is 1"),
        (["audit", "levels", 0, "lost"], [0.1, 0.2, 0.3], r"\[0\]\['lost'\] is \[0.1, 0.2, 0.3\]"),
        (["audit", "levels", 0, "lost"], [0.1, 0.0, 0.05], r"\['lost'\] is \[0.1, 0.0, 0.05\]"),
        (["audit", "levels", 0, "lost"], [0.1, -0.1, 0.2], r"\['lost'\]\[1\] is -0.1"),
        (["audit", "levels", 0, "lost"], [0.1, 0.1], r"length of audit\['levels'\]\[0\]\['lost'\] is 2"),
        (["audit", "levels", 0, "lost"], None, r"\['lost'\] is None"),
        (["audit", "levels", 0, "removed"], None, r"\['removed'\] is None"),
        (["audit", "levels", 0, "removed"], [0.5, 0.4, 1.1], r"\['removed'\]\[2\] is 1.1"),
        (["audit", "levels", 0, "declined"], "why", r"\['lost'\] is \["),
        (["audit", "levels", 0, "candidates"], 60 * 14, r"\['candidates'\] is 840"),
        (["audit", "levels", 0, "candidates"], -1, r"\['candidates'\] is -1"),
        (["audit", "levels", 0, "true_lost"], 1.5, r"\['true_lost'\] is 1.5"),
        (["audit", "missing"], None, r"audit\['missing'\] is None"),
        (["audit", "error"], -0.1, r"audit\['error'\] is -0.1"),
        (["audit", "excess"], float("inf"), r"audit\['excess'\] is inf"),
        (["audit", "classes", 0, "number"], 14, r"\['number'\] is 14"),
        (["audit", "classes", 0, "rows"], 61, r"\['rows'\] is 61"),
        (["audit", "classes", 0, "rows"], -1.0, r"\['rows'\] is -1.0"),
        (["audit", "classes", 0, "why"], 3, r"\['why'\] is 3"),
        (["audit", "classes"], FACTS["audit"]["classes"] * 15, r"length of audit\['classes'\] is 15"),
        (["audit", "pairs", 0, "numbers"], [1, 1], r"different values in audit\['pairs'\]"),
        (["audit", "pairs", 0, "numbers"], [1, 14], r"\['numbers'\]\[1\] is 14"),
        (["audit", "pairs", 0, "numbers"], [1], r"length of audit\['pairs'\]\[0\]\['numbers'\] is 1"),
        (["truth", "rows"], 61, r"truth\['rows'\] is 61"),
        (["truth", "accuracy"], "1", r"truth\['accuracy'\] is '1'"),
    ],
)
def test_refusals(path, value, message):
    with pytest.raises(ValueError, match=message) as caught:
        ReportFacts.from_json(changed(path, value))
    words = str(caught.value)
    assert words.startswith("the facts are damaged: ")
    assert words.endswith("; train again to get new ones")
    assert "\n" not in words
    assert len(words) < 400


@pytest.mark.parametrize(
    "path",
    [[name] for name in FACTS]
    + [["doubtful", 0, "id"], ["truth", "rows"]]
    + [["audit", name] for name in FACTS["audit"]]
    + [["audit", "levels", 0, name] for name in FACTS["audit"]["levels"][0]],
)
def test_nothing_may_be_missing(path):
    with pytest.raises(ValueError, match=f"'{path[-1]}' in .* is 'missing'"):
        ReportFacts.from_json(without(path))


def test_sizes_are_bounded():
    rows = FACTS["doubtful"][:1] * 1001
    with pytest.raises(ValueError, match="length of doubtful is 1001"):
        ReportFacts.from_json(changed(["doubtful"], rows))
    facts = birds(rows=60, classes=[str(i) for i in range(31)], doubtful=2).to_json()
    with pytest.raises(ValueError, match="length of shown is 31"):
        ReportFacts.from_json({**facts, "shown": list(range(31))})


def test_an_audit_without_estimates_says_why():
    facts = changed(["audit"], audit(14, 60, declined="too few rows"))
    assert ReportFacts.from_json(facts).cost["declined"] == "too few rows"
    assert ReportFacts.from_json(facts).cost["lost"] is None


def test_bounds_that_miss_by_rounding():
    assert ReportFacts.from_json(changed(["audit", "missing"], [0.0, 1e-18, 0.1])).audit["missing"][1] == 1e-18


def test_the_cost_is_that_of_the_level_that_was_used():
    assert ReportFacts.from_json(FACTS).cost == FACTS["audit"]["levels"][2]
    assert ReportFacts.from_json(changed(["settings", "alpha"], 0.07)).cost is None
    assert ReportFacts.from_json(changed(["settings"], {})).cost is None
    assert ReportFacts.from_json(changed(["audit"], None)).cost is None


@given(st.integers(0, 10**6))
def test_a_real_audit_comes_back(seed):
    generator = torch.Generator().manual_seed(seed)
    log_p = 3 * torch.randn(120, 3, generator=generator)
    S = torch.rand(120, 3, generator=generator) < 0.5
    S |= torch.eye(3).bool()[log_p.softmax(-1).multinomial(1, generator=generator)[:, 0]]
    found = audits.audit(log_p, S, Budget.of(log_p, S), y=log_p.argmax(-1)).to_json()
    run = {"title": "", "version": "", "date": "2026-01-31", "seconds": 0.0, "device": "cpu"}
    findings = ReportFacts(
        **run, classes=["a", "b", "c"], rows=120, changed=0, before=[0, 0, 120], after=[0, 0, 120], audit=found
    )
    assert ReportFacts.from_json(json.loads(json.dumps(findings.to_json()))) == findings


def test_the_made_up_history_has_all_there_is():
    assert FACTS["history"].keys() == set(HISTORY)
