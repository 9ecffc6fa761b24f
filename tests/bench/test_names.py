"""Runs keep their names: the committed results are found again by the present code."""

import json
from pathlib import Path

import numpy as np
import pytest

from candidly import cli
from candidly.bench import names, read, read_spec
from candidly.bench import run as runs
from candidly.bench.spec import Spec
from candidly.data.dataset import Dataset
from candidly.engine.recipe import Recipe

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"
OWN = dict(read_spec(BENCHMARKS / "cifar10_cleaning.toml").own) | dict(read_spec(BENCHMARKS / "features.toml").own)
SPECS = {
    "uai2025": ("uai2025", "uai2025-images", "uai2025-cifar10"),
    "cifar10_cleaning": ("cifar10_cleaning",),
    "grouped": ("grouped",),
}


def facts(path):
    return json.loads(path.read_text(encoding="utf-8"))


def is_swept(summary):
    """Whether a run is of CroSel before its bank became a setting; it always swept then."""
    method = summary["config"]["method"]
    return method["name"] == "crosel" and "bank" not in method


PATHS = sorted((BENCHMARKS / "results").glob("*/*/summary.json"))
SUMMARIES = [path for path in PATHS if not is_swept(facts(path))]


def is_first(summary):
    """Whether a run is from before version 0.1, when the recipe's name was hashed and the code was not."""
    return "code" not in summary["config"]


def spec_of(summary):
    """Return the spec that a summary says it was made by."""
    config = summary["config"]
    return Spec(
        (summary["dataset"],),
        (names.current(summary["method"]),),
        seeds=summary["seeds"],
        inits=config["inits"],
        protocol=config["protocol"],
        recipe=Recipe(**({"name": summary.get("recipe")} | config["recipe"])),
        own=OWN,
    )


def empty(name):
    return Dataset(name, np.zeros((1, 1), np.float32), np.ones((1, 2), bool), None, ("a", "b"))


def folders(spec, dataset, first=False):
    """Return the names of a spec's run folders, on request as they were before version 0.1."""
    found = runs.Run.all_of(spec, dataset, dataset.name, Path())
    if not first:
        return [run.folder.name for run in found]
    configs = [run.config | {"recipe": run.config["recipe"] | {"name": spec.recipe.name}} for run in found]
    hashes = [runs.store.digest({key: config[key] for key in config if key != "code"}) for config in configs]
    return [f"{run.folder.name[:-16]}{suffix}" for run, suffix in zip(found, hashes, strict=True)]


def test_there_are_results():
    assert len(SUMMARIES) > 100
    assert sum(names.current(facts(path)["method"]) != facts(path)["method"] for path in SUMMARIES) == 11
    assert len(PATHS) - len(SUMMARIES) == 4


@pytest.mark.parametrize("path", SUMMARIES, ids=lambda path: path.parent.name)
def test_a_folder_is_named_after_its_configuration(path, monkeypatch):
    summary = facts(path)
    config = summary["config"]
    assert path.parent.name.endswith(f"-{runs.store.digest(config)}")
    monkeypatch.setattr(runs, "fingerprint", lambda dataset, **_: config["dataset"]["content"])
    assert folders(spec_of(summary), empty(summary["dataset"]), is_first(summary)) == [path.parent.name]


@pytest.mark.parametrize("folder", SPECS)
def test_the_specs_name_the_committed_folders(folder, monkeypatch):
    paths = sorted((BENCHMARKS / "results" / folder).glob("*/summary.json"))
    contents = {facts(path)["dataset"]: facts(path)["config"]["dataset"]["content"] for path in paths}
    monkeypatch.setattr(runs, "fingerprint", lambda dataset, **_: contents[dataset.name])
    specs = [read_spec(BENCHMARKS / f"{name}.toml") for name in SPECS[folder]]
    found = {path.parent.name for path in paths}
    computed = []
    for spec in specs:
        for dataset in spec.datasets:
            pairs = zip(folders(spec, empty(dataset), True), folders(spec, empty(dataset)), strict=True)
            computed += [old if old in found else new for old, new in pairs]
    assert sorted(computed) == sorted(found)


@pytest.mark.parametrize("name", ["lost", "bird-song", "msrc-v2"])
def test_the_real_datasets_name_the_committed_folders(name, real_files):
    dataset = real_files(name)
    paths = [path for path in SUMMARIES if facts(path)["dataset"] == name]
    for summary, path in zip(map(facts, paths), paths, strict=True):
        assert folders(spec_of(summary), dataset, is_first(summary)) == [path.parent.name]


def test_results_are_read_under_the_present_name():
    scores = read(BENCHMARKS / "results" / "cifar10_cleaning")
    assert "conformal+proden" in scores.methods
    assert "revocable+proden" not in scores.methods
    assert "revocable-held-out+proden" in scores.methods, "the name of a custom cleaner is left alone"


@pytest.mark.filterwarnings("default")
def test_the_command_line_accepts_the_old_name_and_says_so(tmp_path, capsys):
    options = ["--datasets", "digits+uniform-0.3", "--seeds", "0", "--epochs", "1", "--device", "cpu"]
    cli.main(["bench", "--methods", "revocable+cc", *options, "--out", str(tmp_path)])
    seen = capsys.readouterr()
    assert "write 'conformal+cc' instead of 'revocable+cc'" in seen.err
    assert "conformal+cc" in seen.out
    assert [path.name[:31] for path in tmp_path.glob("digits*")] == ["digits+uniform-0.3-revocable+cc"]


def test_a_run_is_stored_under_the_old_name_and_called_by_the_new():
    dataset = empty("toy")
    (run,) = runs.Run.all_of(Spec(("toy",), ("conformal+cc",)), dataset, "toy", Path())
    assert (run.method, run.title, run.config["name"]) == ("conformal+cc", "toy conformal+cc", "revocable+cc")
    assert run.folder.name.startswith("toy-revocable+cc-")


@pytest.mark.parametrize("name", ["proden", "conf+proden", "conf+proden (no correction)", "revocable", "conformal"])
def test_other_names_stay(name):
    assert names.current(name) == names.stored(name) == name


@pytest.mark.parametrize(
    ("name", "parts"),
    [
        ("cc", ("", "cc", "")),
        ("conf+proden (no correction)", ("conf", "proden", "(no correction)")),
        ("a+b+c", ("a+b", "c", "")),
        ("odd) name", ("", "odd) name", "")),
    ],
)
def test_split(name, parts):
    assert names.split(name) == parts
