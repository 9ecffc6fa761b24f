"""The project's files agree with each other."""

import re
import tomllib
from pathlib import Path

import pytest

import candidly
from tests.conftest import SLOW

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
# Not tested at their lowest versions: torch, tools, and the engines, which only `make engines` installs.
NEWEST = {"torch", "triton", "build", "mypy", "ruff", "distributed", "ray", "onnx", "onnxscript", "onnxruntime"}


def bounds():
    """Return the lower bound of every dependency of the library and of its tests."""
    groups = [PROJECT["project"]["dependencies"], *PROJECT["project"]["optional-dependencies"].values()]
    groups.append([one for one in PROJECT["dependency-groups"]["dev"] if isinstance(one, str)])
    found = dict(re.findall(r"^([\w-]+)>=([\d.]+)", "\n".join(one for group in groups for one in group), re.MULTILINE))
    return {name: version for name, version in found.items() if name not in NEWEST}


def pins(name):
    text = (ROOT / name).read_text(encoding="utf-8")
    return {
        key.lower().replace("_", "-"): version for key, version in re.findall(r"^([\w-]+)==(\S+)", text, re.MULTILINE)
    }


def numbers(version):
    return tuple(map(int, version.split(".")))


def test_the_lowest_versions_are_the_lower_bounds():
    lowest = pins("constraints-lowest.txt")
    assert lowest.keys() == bounds().keys()
    for name, bound in bounds().items():
        version = numbers(lowest[name])
        assert version == numbers(bound) + (0,) * (len(version) - len(numbers(bound))), name


def test_the_pinned_versions_are_allowed():
    pinned = pins("constraints.txt")
    for name, bound in bounds().items():
        assert numbers(re.match(r"[\d.]+", pinned[name])[0].strip(".")) >= numbers(bound), name


def test_the_version_is_the_same_everywhere():
    citation = (ROOT / "CITATION.cff").read_text(encoding="utf-8")
    assert f"\nversion: {candidly.__version__}\n" in citation
    changelog = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    newest = re.search(r"^## (\d\S+)", changelog, re.MULTILINE)
    assert newest[1] == candidly.__version__


@pytest.mark.parametrize("test", SLOW)
def test_slow_tests_exist(test):
    path, _, function = test.partition("::")
    assert f"def {function}(" in (ROOT / path).read_text(encoding="utf-8")
