"""What README and docs print must run, and what they link to must be there."""

import dataclasses
import doctest
import importlib
import pkgutil
import re
from pathlib import Path

import pytest

import candidly
from candidly.methods import METHODS
from candidly.recipe import RECIPES

ROOT = Path(__file__).parents[1]
PAGES = {str(page.relative_to(ROOT)): page for page in sorted([*ROOT.glob("*.md"), *ROOT.glob("[bd]*/**/*.md")])}
SNIPPETS = {
    f"{name} ({number})": code
    for name, page in PAGES.items()
    for number, code in enumerate(re.findall(r"```python\n(.*?)```", page.read_text(encoding="utf-8"), re.DOTALL))
}
MODULES = [
    module.name for module in pkgutil.walk_packages(candidly.__path__, "candidly.") if "__main__" not in module.name
]
PUBLIC = (
    "engine",
    "problem",
    "recipe",
    "candidates",
    "annotations",
    "metrics",
    "cleaning.clsp",
    "cleaning.conformal",
    "cleaning.controls",
)
WITH_EXAMPLES = {f"candidly.{name}" for name in (*PUBLIC, *(f"methods.{name}" for name in METHODS))}


def test_pages_and_snippets_are_found():
    assert {"README.md", "CONTRIBUTING.md", "docs/cleaning.md", "benchmarks/README.md"} <= PAGES.keys()
    assert {"README.md (0)", "docs/methods/proden.md (0)"} <= SNIPPETS.keys()


@pytest.mark.parametrize("name", SNIPPETS)
def test_snippets_run(name, capsys, monkeypatch):
    monkeypatch.setitem(RECIPES, "quick", dataclasses.replace(RECIPES["quick"], epochs=2))
    exec(compile(SNIPPETS[name], name, "exec"), {})
    assert capsys.readouterr().out


@pytest.mark.parametrize("name", PAGES)
def test_links_lead_somewhere(name):
    text = PAGES[name].read_text(encoding="utf-8")
    targets = [link for link in re.findall(r"\]\(([^)#\s]+)", text) if "://" not in link]
    missing = [target for target in targets if not (PAGES[name].parent / target).exists()]
    assert not missing


def test_the_readme_is_short():
    assert len(PAGES["README.md"].read_text(encoding="utf-8").splitlines()) <= 150


@pytest.mark.parametrize("name", MODULES)
def test_docstring_examples_run(name):
    found = doctest.testmod(importlib.import_module(name))
    assert not found.failed
    assert found.attempted or name not in WITH_EXAMPLES
