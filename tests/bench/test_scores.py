"""Collecting accuracies from summaries, predictions and CSV files."""

import math

import pytest

from candidly.bench.scores import Scores


def test_mean_and_spread_are_over_seeds():
    scores = Scores({("d", "m"): {0: 0.5, 1: 0.6, 2: 0.7}, ("d", "n"): {0: 0.5}})
    assert scores.mean("d", "m") == pytest.approx(0.6)
    assert scores.spread("d", "m") == pytest.approx(0.1)  # √((0.1² + 0² + 0.1²) / 2)
    assert math.isnan(scores.spread("d", "n"))


def test_means_that_differ_by_rounding_are_equal():
    values = (0.1, 0.2, 0.3, 0.7)
    scores = Scores({("d", "m"): dict(enumerate(values)), ("d", "n"): {0: sum(values) / 4}})
    assert scores.mean("d", "m") == scores.mean("d", "n")


def test_order_of_datasets_and_methods():
    methods = [
        "proden",
        "proden (long)",
        "rc",
        "cc",
        "crosel",
        "alpha",
        "zeta",
        "conf+proden",
        "conf+proden (no correction)",
        "conf+crosel",
        "conf+beta",
        "clsp+proden",
        "algorithm1+cc",
        "conf-random+pop",
    ]
    cells = {(dataset, method): {1: 0.1, 0: 0.2} for dataset in ("soccer", "lost") for method in reversed(methods)}
    scores = Scores(cells)
    assert list(scores.methods) == methods
    assert scores.datasets == ("lost", "soccer")
    assert list(scores.cells) == [(dataset, method) for dataset in ("lost", "soccer") for method in methods]
    assert list(scores.cells["lost", "rc"]) == [0, 1]
    assert list(scores.base_methods) == methods[:7]


def test_scores_cannot_be_changed():
    scores = Scores({("d", "m"): {0: 0.5}})
    with pytest.raises(TypeError):
        scores.cells["d", "n"] = {}
    with pytest.raises(TypeError):
        scores.cells["d", "m"][1] = 0.1


@pytest.mark.parametrize(
    ("cells", "message"),
    [
        ({("d", "m"): {}}, "no seeds"),
        ({("d", "m"): {0: 55.0}}, "55.0; it must be between 0 and 1"),
        ({("d", "m"): {0: math.nan}}, "nan"),
        ({("d", "m\n"): {0: 0.5}, ("d", r"m\n"): {0: 0.5}}, "occurs twice"),
    ],
)
def test_impossible_cells_are_refused(cells, message):
    with pytest.raises(ValueError, match=message):
        Scores(cells)


SCORES = Scores(
    {(dataset, method): {0: 0.5} for dataset in ("lost", "soccer") for method in ("proden", "cc", "conf+cc")}
)


def test_some_methods_and_datasets_in_the_order_given():
    some = SCORES.select(datasets=["soccer", "lost"], methods=["conf+cc", "proden"])
    assert (some.datasets, some.methods) == (("soccer", "lost"), ("conf+cc", "proden"))
    assert list(some.cells)[:2] == [("soccer", "conf+cc"), ("soccer", "proden")]
    assert some.base_methods == ("proden",)
    assert SCORES.select() == Scores(SCORES.cells, order=(SCORES.datasets, SCORES.methods))


@pytest.mark.parametrize(
    ("chosen", "message"),
    [
        ({"methods": ["prodne"]}, "methods has 'prodne', of which there is no result .did you mean 'proden'"),
        ({"datasets": ["Lost"]}, "datasets has 'Lost', of which there is no result .did you mean 'lost'"),
        ({"methods": ["cc", "cc"]}, "methods has 'cc' twice"),
        ({"methods": []}, "methods is empty"),
    ],
)
def test_a_choice_of_what_is_not_there(chosen, message):
    with pytest.raises(ValueError, match=message):
        SCORES.select(**chosen)


def test_a_choice_without_cells():
    scores = Scores({("lost", "cc"): {0: 0.5}, ("soccer", "pop"): {0: 0.5}})
    with pytest.raises(ValueError, match="no chosen method has a result on a chosen dataset"):
        scores.select(datasets=["lost"], methods=["pop"])


def test_labels():
    assert SCORES.labels({"cc": "CC"})["cc"] == "CC"
    for names, message in (
        ({"ccc": "x"}, "names has 'ccc' .did you mean 'cc'.*not in the table"),
        ({"cc": "proden"}, "names shows two rows or columns as 'proden'"),
        ({"cc": " "}, "names shows 'cc' as an empty text"),
    ):
        with pytest.raises(ValueError, match=message):
            SCORES.labels(names)
    assert SCORES.labels({"cc": "\x1b[1m"})["cc"] == "\\x1b[1m"


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"cells": [1]}, "cells is \\[1\\]; it must be a mapping"),
        ({"cells": {"toy": {0: 0.5}}}, "cells has the key 'toy'; it must be a pair"),
        ({"split": 3}, "split is 3"),
        ({"order": "toy"}, "order is 'toy'; it must be a pair"),
        ({"order": (("other",), ())}, "order\\[0\\] lacks 'toy'"),
    ],
)
def test_wrong_scores_are_refused(wrong, message):
    with pytest.raises(ValueError, match=message):
        Scores(**({"cells": {("toy", "cc"): {0: 0.5}}} | wrong))
