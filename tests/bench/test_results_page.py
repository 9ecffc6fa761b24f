"""The page of results is what `candidly table` makes of the committed summaries."""

from pathlib import Path

import pytest

from candidly.bench import read, read_csv, read_spec
from candidly.bench.table import BEGIN, END, render

ROOT = Path(__file__).parents[2]
SUMMARIES = ROOT / "benchmarks" / "results" / "uai2025"


def made():
    text = (ROOT / "docs" / "results.md").read_text(encoding="utf-8")
    return text.partition(BEGIN)[2].partition(END)[0].strip()


def test_the_main_table_is_up_to_date():
    assert made().startswith(render(read(SUMMARIES), style="markdown").strip())


def test_the_comparison_is_up_to_date():
    published = ROOT.parent / "shared" / "published.csv"
    if not published.is_file():
        pytest.skip("the published accuracies are not beside the repository")
    assert made() == render(read(SUMMARIES), style="markdown", against=read_csv(published)).strip()


def test_every_run_of_the_specs_is_there():
    specs = [read_spec(ROOT / "benchmarks" / f"uai2025{name}.toml") for name in ("", "-images", "-cifar10")]
    wanted = {(data, method): spec.seeds for spec in specs for data in spec.datasets for method in spec.combinations()}
    assert {cell: tuple(seeds) for cell, seeds in read(SUMMARIES).cells.items()} == wanted
