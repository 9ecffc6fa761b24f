"""What README and docs print must run, and what they link to must be there."""

import dataclasses
import doctest
import importlib
import itertools
import json
import os
import pkgutil
import re
import runpy
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

import candidly
from candidly.cli import app as cli
from candidly.engine.nets import mlp
from candidly.engine.recipe import RECIPES
from candidly.estimator import crossfit
from candidly.methods import METHODS

ROOT = Path(__file__).parents[1]
PAGES = {str(page.relative_to(ROOT)): page for page in sorted([*ROOT.glob("*.md"), *ROOT.glob("[bd]*/**/*.md")])}
TEXTS = {name: page.read_text(encoding="utf-8") for name, page in PAGES.items()}
MODULES = [
    module.name for module in pkgutil.walk_packages(candidly.__path__, "candidly.") if "__main__" not in module.name
]
PUBLIC = (
    "engine.fitting",
    "engine.problem",
    "engine.recipe",
    "candidates.sets",
    "candidates.votes",
    "metrics",
    "cleaning.clsp",
    "cleaning.conformal",
    "cleaning.controls",
)
WITH_EXAMPLES = {f"candidly.{name}" for name in (*PUBLIC, *(f"methods.{name}" for name in METHODS))}
GUIDES = {name: text for name, text in TEXTS.items() if name.startswith("docs/guides/")}  # snippets build on each other

# What is not run as printed, and why. Its options must be in the help of its command.
NOT_RUN = {
    r"make ": "installs an environment",
    r"pip ": "installs",
    r"candidly demo": "takes a minute; test_cli.py runs a shorter one",
    r"python -m benchmarks\.": "takes minutes to hours, most on datasets that are not shipped",
    r"python examples/(crowd_votes|captions)": "test_examples.py runs them",
    r"candidly review": "serves a page until it is interrupted; tests/review/test_browser.py does it",
    r"candidly (apply|.* --decisions )": "needs the log of a review; tests/cli/test_review.py makes one",
}
# Options of dask, ray, sbatch and torchrun, which docs/guides/scale.md speaks of.
OF_OTHER_PROGRAMS = {
    *("--address", "--array", "--cpus-per-task", "--head", "--nthreads", "--nworkers", "--port"),
    *(
        "--ray-client-server-port",
        "--max-restarts",
        "--nnodes",
        "--nproc-per-node",
        "--rdzv-backend",
        "--rdzv-endpoint",
    ),
    "--standalone",
}
# What runs with a stand-in for training, which makes results up.
NOT_TRAINED = {
    r"candidly bench .*(--suite|--download|--data |lost|features)": "hours, on datasets that are not shipped"
}


def blocks(text):
    """Return the blocks of code that a page has, each with its language."""
    return re.findall(r"^```(\w*)\n(.*?)^```", text, re.DOTALL | re.MULTILINE)


def snippets(text):
    return [code for language, code in blocks(text) if language == "python"]


def commands(text):
    """Return the commands that a page prints, one per line; a backslash at the end of a line continues it."""
    found = []
    for language, code in blocks(text):
        lines = code.replace("\\\n", " ").splitlines() if language in ("", "sh", "console") else []
        found += [line.removeprefix("$ ").strip() for line in lines if language != "console" or line.startswith("$ ")]
    return [line for line in found if line.partition("#")[0].strip()]


def printing(text):
    """Return the snippets that a page shows with what they print, each with that text."""
    return re.findall(r"^```python\n(.*?)^```\n\n```text\n(.*?)^```", text, re.DOTALL | re.MULTILINE)


SNIPPETS = {name: snippets(text) for name, text in TEXTS.items() if snippets(text) and not printing(text)}
PRINTING = {name: pair for name, text in TEXTS.items() for pair in printing(text)}
COMMANDS = {name: commands(text) for name, text in TEXTS.items() if commands(text)}


def matches(command, patterns):
    return any(re.match(pattern, command) for pattern in patterns)


def make_up_results(folder, datasets=("made-up",), methods=("proden", "cc"), seeds=(0, 1)):
    for dataset in datasets:
        for number, method in enumerate(methods):
            accuracy = [[0.5 + 0.01 * number + 0.001 * seed] for seed in seeds]
            summary = {"format": 1, "dataset": dataset, "method": method, "seeds": list(seeds)}
            path = folder / f"{dataset}-{method}" / "summary.json"
            path.parent.mkdir(parents=True)
            path.write_text(json.dumps(summary | {"metrics": {"test_accuracy": accuracy}}))


@pytest.fixture
def place(tmp_path, monkeypatch):
    """A working folder with the files that pages speak of; trainings are short there, and networks narrow."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(mlp, "HIDDEN", 64)
    monkeypatch.setitem(RECIPES, "quick", dataclasses.replace(RECIPES["quick"], epochs=2))
    monkeypatch.setitem(crossfit.QUALITIES, "fast", crossfit.QUALITIES["fast"]._replace(epochs=25))
    for name in ("benchmarks", "examples"):
        (tmp_path / name).symlink_to(ROOT / name)
    runpy.run_path("examples/make_birds.py", run_name="__main__")
    (tmp_path / "docs" / "evidence").mkdir(parents=True)
    for page in ("results", "images"):
        shutil.copy(PAGES[f"docs/evidence/{page}.md"], "docs/evidence")
    Path("published.csv").write_text("method,dataset,seed,test_accuracy\nproden,lost,0,0.8\n")
    Path("momentum.py").write_text(snippets(TEXTS["docs/guides/own-method.md"])[0])
    make_up_results(tmp_path / "runs" / "crosel_gap")
    return tmp_path


def test_pages_snippets_and_commands_are_found():
    assert {"README.md", "CONTRIBUTING.md", "docs/cleaning.md", "benchmarks/README.md"} <= PAGES.keys()
    assert {"docs/guides/table.md", "docs/guides/own-method.md", "docs/methods/proden.md"} <= SNIPPETS.keys()
    assert {"README.md", "docs/index.md"} == PRINTING.keys()
    assert {"README.md", "docs/guides/table.md", "docs/experiments.md"} <= COMMANDS.keys()
    assert commands("```\na b \\\n  c # d\n# e\n\n```\n```toml\nf\n```\n```sh\ng\n```\n") == ["a b    c # d", "g"]
    assert commands("```console\n$ a b\nwhat it prints\n```\n") == ["a b"]


@pytest.mark.parametrize("name", SNIPPETS)
def test_snippets_run(name, place, capsys):
    names = {}
    for number, code in enumerate(SNIPPETS[name]):
        capsys.readouterr()
        exec(compile(code, f"{name} ({number})", "exec"), names if name in GUIDES else {})
        assert capsys.readouterr().out or (name in GUIDES and "print" not in code), code


def test_what_the_first_example_prints(capsys):
    (code, shown), (same, _) = PRINTING["README.md"], PRINTING["docs/index.md"]
    assert same == code
    exec(compile(code, "README.md", "exec"), {})
    printed = capsys.readouterr().out
    number = r"\d+(?:\.\d+)?"
    assert re.sub(number, "", printed).split() == re.sub(number, "", shown).split()
    told, found = ([float(one) for one in re.findall(number, text)] for text in (shown, printed))
    assert found == pytest.approx(told, abs=1, rel=0.01)  # another processor rounds differently


@pytest.mark.parametrize("name", COMMANDS)
def test_commands_run(name, place, capsys):
    for command in COMMANDS[name]:
        with pytest.MonkeyPatch.context() as monkeypatch:
            run(command, monkeypatch, capsys)
            assert "candidly: " not in capsys.readouterr().err, command  # no error, and no warning either


def run(command, monkeypatch, capsys):
    """Run a printed command in the current folder, as far as that is possible here."""
    words = shlex.split(command, comments=True)
    if matches(command, NOT_RUN):
        explained = help_on(words, monkeypatch, capsys)
        assert [word for word in words if word.startswith("--") and word not in explained] == [], command
        return
    if matches(command, NOT_TRAINED):
        monkeypatch.setattr("candidly.bench.sweeps.sweep", make_up_sweep)
    if re.search(r"\s[|<>]\s", command):
        monkeypatch.setenv("PATH", str(Path(sys.executable).parent), prepend=os.pathsep)
        monkeypatch.setenv("OMP_NUM_THREADS", "1")
        subprocess.run(["sh", "-c", command], check=True)
    elif words[0] == "candidly":
        cli.main(words[1:])
    else:
        assert words[0] == "python", f"no rule for: {command}"
        runpy.run_path(words[1], run_name="__main__")
    for option, value in itertools.pairwise(words):
        if option in ("--out", "--report", "--diagram", "--into") and value != "-":
            assert Path(value).exists(), command


def make_up_sweep(spec, out, **options):
    make_up_results(Path(out), spec.datasets, spec.combinations(), spec.seeds)
    return SimpleNamespace(failed=[], postponed=[])


def help_on(words, monkeypatch, capsys):
    """Return the help on a command that is not run."""
    if words[0] == "make":
        listed = subprocess.run(["make", "-C", ROOT, "help"], capture_output=True, text=True, check=True).stdout
        assert f"make {words[1]}\t" in listed
        return listed
    if words[0] == "pip":
        ask = [sys.executable, "-m", *words[:2], "--help"]
        return subprocess.run(ask, capture_output=True, text=True, check=True).stdout
    if words[0] == "candidly":
        return said(lambda: cli.main([words[1], "--help"]), capsys)
    if words[1] == "-m":
        monkeypatch.setattr(sys, "argv", [words[2], "--help"])
        module = importlib.import_module(words[2])
        if hasattr(module, "__path__"):  # a package
            module = importlib.import_module(f"{words[2]}.__main__")
        return said(module.main, capsys)
    return Path(words[1]).read_text(encoding="utf-8")


def said(ask, capsys):
    capsys.readouterr()
    with pytest.raises(SystemExit) as stop:
        ask()
    assert not stop.value.code
    return capsys.readouterr().out


def test_the_check_of_commands_sees(place, capsys, monkeypatch):
    for command in ("candidly demo --sedes 3", "candidly table runs/crosel_gap --diagram", "git pull", "make money"):
        with pytest.raises((AssertionError, SystemExit)):
            run(command, monkeypatch, capsys)


def test_the_guides_know_the_columns(place):
    options = "--candidates candidates --id id --labels label --epochs 1 --force-cleaning"
    cli.main(shlex.split(f"clean birds.csv {options} --out cleaned.csv"))
    cli.main(shlex.split(f"fit birds.csv {options} --out model"))
    cli.main(shlex.split("predict model new-birds.csv --alpha 0.1 --out predictions.csv"))
    headers = [Path(name).read_text().partition("\n")[0].split(",") for name in ("cleaned.csv", "predictions.csv")]
    names = ["id", "candidates", "kept", "removed", "predicted", "confidence", "priority", "scores"]
    assert headers[0] == [*names, "outside", "outside_score", "true"]
    assert headers[1] == ["id", "predicted", "probability", "set"]
    for name in ("docs/guides/clean.md", "docs/guides/commands.md"):
        assert [column for column in headers[0][1:] if f"`{column}`" not in TEXTS[name]] == []
    for name in ("docs/guides/table.md", "docs/guides/commands.md"):
        assert [column for column in headers[1][1:] if f"`{column}`" not in TEXTS[name]] == []


def test_the_guides_name_options_that_there_are(capsys):
    names = ("embed", "clean", "fit", "audit", "verify", "certify", "predict", "evaluate", "bench", "table")
    names = (*names, "review", "apply")
    known = "".join(said(lambda name=name: cli.main([name, "--help"]), capsys) for name in names)
    spoken_of = set(re.findall(r"--[a-z][a-z-]*", "".join(GUIDES.values()) + TEXTS["docs/experiments.md"]))
    assert {"--candidates", "--json", "--suite"} <= spoken_of
    unknown = {option for option in spoken_of if not re.search(rf"{option}\b", known)}
    assert sorted(unknown - OF_OTHER_PROGRAMS) == []


@pytest.mark.parametrize("name", PAGES)
def test_links_lead_somewhere(name):
    targets = [link for link in re.findall(r"\]\(([^)#\s]+)", TEXTS[name]) if "://" not in link]
    missing = [target for target in targets if not (PAGES[name].parent / target).exists()]
    assert not missing


def test_the_readme_is_short():
    assert len(TEXTS["README.md"].splitlines()) <= 120


def test_the_picture_is_small():
    assert (ROOT / "docs" / "images" / "before-after.png").stat().st_size < 200_000


def test_every_page_is_in_the_navigation():
    listed = re.findall(r"- ([\w/-]+\.md)$", (ROOT / "mkdocs.yml").read_text(encoding="utf-8"), re.MULTILINE)
    assert sorted(listed) == sorted(name.removeprefix("docs/") for name in PAGES if name.startswith("docs/"))


def test_every_room_has_a_page_of_reference():
    rooms = {name for name in candidly.__all__ if (Path(candidly.__file__).parent / name).is_dir()} | {"metrics"}
    assert [room for room in rooms if f"::: candidly.{room}\n" not in TEXTS[f"docs/api/{room}.md"]] == []


def build_site(folder, *options):
    """Build the site in a copy of the repository; with "--clean" as `make docs` does, else only what has changed."""
    command = [sys.executable, "-m", "zensical", "build", "--strict", *options]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)


def test_the_site_builds_and_loads_nothing_from_elsewhere(tmp_path):
    for package in ("zensical", "mkdocstrings_handlers.python"):
        pytest.importorskip(package, reason="the tools of `make docs` are not installed")
    shutil.copytree(ROOT / "docs", tmp_path / "docs")
    shutil.copytree(ROOT / "src", tmp_path / "src", ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "mkdocs.yml", tmp_path)
    done = build_site(tmp_path, "--clean")
    assert done.returncode == 0, done.stdout + done.stderr
    html = {path.relative_to(tmp_path / "site"): path.read_text() for path in (tmp_path / "site").rglob("*.html")}
    assert len(html) >= len([name for name in PAGES if name.startswith("docs/")])
    assert "PartialLabelClassifier" in html[Path("api/estimator.html")]
    loaded = (
        r"<(?:script|img|iframe|source)[^>]*src=.?https?:|<link[^>]*rel=.?(?:stylesheet|icon|preconnect)[^>]*https?:"
    )
    assert [str(name) for name, text in html.items() if re.search(loaded, text)] == []
    with (tmp_path / "docs" / "index.md").open("a", encoding="utf-8") as page:
        page.write("\n[a](nowhere.md) [b](glossary.md#nowhere) [c][candidly.nothing]\n")
    broken = build_site(tmp_path)
    assert broken.returncode != 0
    assert "3 issues found" in broken.stdout + broken.stderr


@pytest.mark.parametrize("name", MODULES)
def test_docstring_examples_run(name):
    found = doctest.testmod(importlib.import_module(name))
    assert not found.failed
    assert found.attempted or name not in WITH_EXAMPLES
