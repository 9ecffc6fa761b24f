"""The pages of evidence are what `candidly table` and the benchmarks make of the committed results."""

import json
from pathlib import Path

import pytest

from benchmarks import cifar10n, trust_page, weak
from benchmarks.cells import read as read_cells
from candidly.bench import read, read_csv, read_spec
from candidly.bench.table import BEGIN, END, render
from candidly.cleaning import estimates

ROOT = Path(__file__).parents[2]
RESULTS = ROOT / "benchmarks" / "results"
SUMMARIES, GROUPED = RESULTS / "uai2025", RESULTS / "grouped"


def made(begin=BEGIN, end=END, page="results"):
    text = (ROOT / "docs" / "evidence" / f"{page}.md").read_text(encoding="utf-8")
    return text.partition(begin)[2].partition(end)[0].strip()


def made_block(name, page):
    return made(f"<!-- begin {name} -->", f"<!-- end {name} -->", page)


def test_the_main_table_is_up_to_date():
    assert made().startswith(render(read(SUMMARIES), style="markdown").strip())


def test_the_comparison_is_up_to_date():
    published = ROOT.parent / "shared" / "published.csv"
    if not published.is_file():
        pytest.skip("the published accuracies are not beside the repository")
    found = render(read(SUMMARIES), style="markdown", against=read_csv(published), without=["cavl", "valen"])
    assert made() == found.strip()


def test_the_table_of_splits_by_groups_is_up_to_date():
    found = made_block("candidly table grouped", "results")
    assert found == render(read(GROUPED), style="markdown", beside=("uai2025", read(SUMMARIES))).strip()


@pytest.mark.parametrize(
    ("block", "folder", "beside"),
    [
        ("", "images", None),
        (" features", "features", None),
        (" methods", "methods", "methods-lws"),
    ],
)
def test_the_tables_of_images_are_up_to_date(block, folder, beside):
    other = None if beside is None else (beside, read(RESULTS / beside))
    found = render(read(RESULTS / folder), style="markdown", beside=other)
    assert made_block(f"candidly table{block}", "images") == found.strip()


def test_the_table_of_human_votes_is_up_to_date():
    cells = read_cells(RESULTS / "cifar10n.json")
    for inputs in {cell["inputs"] for cell in cells}:
        found = cifar10n.table([cell for cell in cells if cell["inputs"] == inputs])
        assert made_block(f"cifar10n {inputs}", "images") == found


@pytest.mark.parametrize("kind", weak.SEEDS)
def test_the_tables_of_weak_networks_are_up_to_date(kind):
    text = (ROOT / "docs" / "cleaning.md").read_text(encoding="utf-8")
    assert weak.render(kind, read_cells(RESULTS / "weak.json")) in text


def test_what_is_said_of_choosing_by_the_covering_rate_is_what_was_measured():
    cells = [cell for cell in read_cells(RESULTS / "weak.json") if cell["kind"] == "tables"]
    cleaned, plain = (
        {(cell["name"], cell["seed"]): (cell["test"], cell["covering"]) for cell in cells if cell["cleaner"] == cleaner}
        for cleaner in ("conformal", "none")
    )
    right, wrong = [], []
    followed, always, never = 0.0, 0.0, 0.0
    for split, (test, covering) in cleaned.items():
        other, cleans = plain[split][0], covering > plain[split][1]
        if test != other:
            (right if cleans == (test > other) else wrong).append(split[0])
        followed += max(test, other) - (test if cleans else other)
        always += max(test, other) - test
        never += max(test, other) - other
    assert (len(cleaned), len(right), len(wrong), wrong.count("msrc-v2")) == (30, 21, 7, 4)
    assert [round(100 * lost / 30, 1) for lost in (followed, always, never)] == [0.2, 0.6, 1.7]


@pytest.mark.parametrize(
    ("folder", "names"),
    [
        (SUMMARIES, ("uai2025", "uai2025-images", "uai2025-cifar10")),
        (GROUPED, ("grouped",)),
        (RESULTS / "features", ("features",)),
        (RESULTS / "methods", ("methods", "methods-images")),
        (RESULTS / "methods-lws", ("methods-lws", "methods-images-lws")),
    ],
    ids=lambda value: value.name if isinstance(value, Path) else None,
)
def test_every_run_of_the_specs_is_there(folder, names):
    specs = [read_spec(ROOT / "benchmarks" / f"{name}.toml") for name in names]
    pairs = [(spec, name.replace(".npz", "")) for spec in specs for name in spec.datasets]
    wanted = {(name, method): spec.seeds for spec, name in pairs for method in spec.combinations()}
    assert {cell: tuple(seeds) for cell, seeds in read(folder).cells.items()} == wanted


def test_the_tables_of_trust_are_up_to_date():
    page = (ROOT / "docs" / "evidence" / "trust.md").read_text(encoding="utf-8")
    results = json.loads((ROOT / "benchmarks" / "results" / "trust.json").read_text(encoding="utf-8"))
    assert results.keys() == {"synthetic", "real", "ranges", "review", "training"}
    assert all(text in page for text in trust_page.tables(results).values())


def test_what_is_said_of_cleaning_is_what_was_measured():
    results = json.loads((ROOT / "benchmarks" / "results" / "trust.json").read_text(encoding="utf-8"))["real"]
    wanted = {("lost", 0.05): (0.94, 0.55), ("lost", 0.1): (0.89, 0), ("bird-song", 0.05): (0.94, 0.45)}
    wanted |= {("bird-song", 0.1): (0.89, 0), ("msrc-v2", 0.05): (0.94, 0.6), ("msrc-v2", 0.1): (0.89, 0)}
    for (name, alpha), (kept, removed) in wanted.items():
        scores = results["rules"][f"{name} | candidly | {alpha}"]
        assert len(scores) == 5
        assert sum(one[0] for one in scores) / 5 >= kept
        assert sum(one[1] for one in scores) / 5 >= removed
    split = [rows for key, rows in results["audit"].items() if " | split" in key]
    held = [bounds[1] <= lost <= bounds[2] for rows in split for lost, _, bounds in rows]
    assert (len(held), sum(held)) == (120, 120)


def test_what_is_said_of_doubt_is_what_was_measured():
    results = json.loads((ROOT / "benchmarks" / "results" / "trust.json").read_text(encoding="utf-8"))
    assert tuple(results["ranges"]["factors"]) == (estimates.LOWER_FACTOR, estimates.UPPER_FACTOR)
    for name in ("lost", "bird-song", "msrc-v2"):
        one = results["ranges"]["without"][name]  # with factors that were chosen without it
        assert one["now"]["held"] >= 0.85 * one["cells"]
        assert one["declined"] <= 0.25 * one["cells"]
        assert one["now"]["width"] <= 3 * one["before"]["width"]
    least = {"lost": (4, 0), "bird-song": (4, 3), "msrc-v2": (1.9, 0)}
    for name, wanted in least.items():
        fits = results["review"][f"{name} | all"]
        assert len(fits) == 5
        for k, (m, times) in enumerate(zip((100, 1000), wanted, strict=True)):
            found = [one["confidence (the default)"][k] / (m * one["wrong"] / one["rows"]) for one in fits]
            assert sum(found) / 5 >= times
