"""The harness of bad inputs: it counts what it should, covers the public API, and a sample of it passes."""

import sys

import pytest

from benchmarks.robustness import pool, rule
from benchmarks.robustness.__main__ import main, passed, table
from benchmarks.robustness.case import GOOD, KINDS, Case, Verdict, right
from benchmarks.robustness.families import FAMILIES, all_cases, parameters

PLANTED = "tests.robustness.planted"
# Names of cases that stand for their families; all cases take minutes.
SAMPLE = {
    "parameters": (
        "PartialLabelClassifier(alpha=NaN)",
        "PartialLabelClassifier(folds=numpy int64)",
        "PartialLabelClassifier(device=None)",
        "PartialLabelClassifier(random_state=text)",
        "PartialLabelClassifier(early_stopping='no')",
        "Conformal(finite='no')",
        "Crosel(warmup=below the minimum)",
        "Recipe(epochs=numpy int64)",
        "fit(problem=X)",
        "Problem.of(dtype=integers)",
        "from_annotations(min_share=text)",
        "corrupt.uniform(q=a list)",
        "find_bags(S=names)",
    ),
    "tensors": ("metrics.accuracy(p=a list)", "metrics.covered(S=too few rows)"),
    "features": (
        "fit on complex",
        "fit on masked one",
        "fit on far dates",
        "fit on Arrow dictionary with nulls",
        "fit on one value of 1e300",
        "fit on a meta tensor",
        "Problem.of with masked one",
    ),
    "labels": (
        "encode a masked matrix",
        "encode texts with separators",
        "encode names that differ by case",
        "fit with y of class names 2**63 and -1",
        "score with y of class numbers",
        "score with y of an empty row",
    ),
    "weights": (
        "fit with sample_weight masked",
        "score with sample_weight NaN",
        "fit with weights transposed",
        "fit with groups a meta tensor",
    ),
    "votes": ("long votes: far timestamps as tasks", "wide votes: a repeated task", "clean: an unclosed quote"),
    "prediction": (
        "columns labelled by tuples in another order",
        "table: another order",
        "array: infinity",
        "predict before fit",
    ),
    "tables": (
        "CSV: good",
        "CSV: two unclosed quotes",
        "CSV: decimal commas",
        "CSV: UTF-16",
        "Parquet: names like formulas",
        "Parquet: far timestamps as ids",
        "Feather: truncated",
        "file: a name with control characters",
    ),
    "datasets": ("npz: a pickled array", "npz: a huge header", "mat: truncated", "nothing was unpickled"),
    "saved": (
        "model: good",
        "model: a flipped bit at 0.3 of the tensors",
        "model with a class renamed",
        "model with a huge shape and the right checksum",
        "checkpoint: done 999",
        "candidates: a flipped bit",
        "report: nested",
    ),
    "experiments": (
        'spec: own conformal finite = "no"',
        "spec: nested arrays",
        "table: an accuracy changed",
        "bench: an unknown method",
        "bench: device mps",
    ),
    "custom": ("a network that returns None", "a network that raises KeyError", "a method whose step returns NaN"),
    "training": ("fit proden with lr=1e+30", "fit under torch.no_grad", "rows in another position, 7 classes"),
    "tools": ("clone", "cross_val_score with an array of lists", "set_params of an unknown parameter"),
    "commands": (
        "fit --alpha 'nan'",
        "fit --members 10**9",
        "fit --out over a model",
        "predict --drop of a feature",
        "an unknown command",
    ),
}


def test_every_verdict_is_given_where_it_should():
    from tests.robustness import planted

    results = pool.run_all(planted.all_cases(), 1, PLANTED)
    wrong = [(case.name, verdict) for case, verdict, _ in results if not case.name.startswith(verdict.kind)]
    assert wrong == []
    assert {verdict.kind for _, verdict, _ in results} == set(KINDS)
    assert not passed(results)


def test_a_passing_run():
    case = Case("one", "case", lambda: 1, right(lambda one: True))
    results = [(case, Verdict("right"), 0.1)] * 99 + [(case, Verdict("unclear"), 0.1)]
    assert passed(results)
    assert not passed([*results, (case, Verdict("unclear"), 0.1)])
    assert not passed([(case, Verdict("silently wrong"), 0.1)])
    assert table(results).splitlines()[-1].split() == ["all", "100", "99", "0", "1", "0", "0", "0", "0"]


@pytest.mark.parametrize(
    ("message", "problem"),
    [
        ("alpha is 2; pass a number between 0 and 1", ""),
        ("alpha is 2, but it must be below 1", ""),
        ("alpha is 2", "what to do"),
        ("beta is 2; pass a number", "names none"),
        ("alpha is \x1b[31m; pass a number", "control"),
        ("alpha is " + "2" * 3000 + "; pass a number", "characters"),
    ],
)
def test_the_rule_for_messages(message, problem):
    found = rule.judge_message(message, ["alpha"])
    assert (problem in found) if problem else found == ""


def test_the_public_api_is_covered():
    assert parameters.uncovered() == []


def test_there_are_enough_cases_of_every_family():
    families = [case.family for case in all_cases()]
    assert len(families) >= 700
    assert set(families) == set(FAMILIES)
    assert min(map(families.count, FAMILIES)) >= 40


def test_the_command_lists_cases(monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["robustness", "--list", "--family", "weights", "--match", "NaN"])
    assert main() == 0
    listed = capsys.readouterr().out.splitlines()
    assert "weights: score with sample_weight NaN" in listed
    assert all(line.startswith("weights: ") and "NaN" in line for line in listed)


def test_a_sample_passes():
    named = {(family, name) for family, names in SAMPLE.items() for name in names}
    chosen = [case for case in all_cases() if (case.family, case.name) in named]
    assert len(chosen) == len(named)
    results = pool.run_all(chosen, 1, "benchmarks.robustness.families")
    assert [(case.name, verdict) for case, verdict, _ in results if verdict.kind not in GOOD] == []
