"""What is public: lists of names that agree, types that checkers see, and pages that use nothing else."""

import ast
import importlib
import re
import subprocess
import sys
from pathlib import Path

import pytest

import candidly

ROOT = Path(__file__).parents[2]
PACKAGE = Path(candidly.__file__).parent
ROOMS = (
    *("bench", "candidates", "cleaning", "conformal", "data", "encoders", "engine", "estimator", "methods", "metrics"),
    *("report", "review", "tables"),
)
HIDDEN = {"checks", "cli", "messages", "store"}  # rooms whose names are for the library itself
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted(ROOT.glob("docs/**/*.md"))]
EXAMPLES = sorted([*ROOT.glob("examples/*.py"), *ROOT.glob("docs/**/*.py")])


def source(name):
    """Return the file of a room, or of the package itself."""
    folder = PACKAGE / name
    return folder / "__init__.py" if folder.is_dir() else folder.with_suffix(".py")


def listed(path):
    """Return the literal ``__all__`` of a file."""
    for node in ast.parse(path.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__":
            return ast.literal_eval(node.value)
    raise AssertionError(f"{path} has no __all__")


def typed(path):
    """Return what a file imports for type checkers only: each name with the module that it comes from."""
    found = {}
    for node in ast.parse(path.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
            for one in node.body:
                found |= {alias.asname or alias.name: (one.module, alias.name) for alias in one.names}
    return found


PUBLIC = {f"candidly.{room}": set(listed(source(room))) for room in ROOMS} | {"candidly": set(candidly.__all__)}


def test_type_checkers_see_the_names_that_exist():
    assert listed(source("")) == candidly.__all__
    assert {*typed(source("")), "__version__"} == set(candidly.__all__)
    assert dir(candidly) == sorted(candidly.__all__)


@pytest.mark.parametrize("name", sorted(typed(source(""))))
def test_names_are_the_same_at_run_time(name):
    module, original = typed(source(""))[name]
    found = {}
    exec(f"from {module} import {original} as found", found)
    assert getattr(candidly, name) is found["found"]


def test_unknown_names_are_refused():
    for name in ("nonsense", "PartialLabelClassifer", "store", "cli"):
        with pytest.raises(AttributeError, match=f"has no attribute '{name}'"):
            candidly.__getattr__(name)


def test_every_room_is_public_or_hidden():
    rooms = {path.stem for path in PACKAGE.iterdir() if path.stem[0] != "_" and path.suffix in ("", ".py")}
    assert rooms == {*ROOMS, *HIDDEN}
    assert set(ROOMS) <= set(candidly.__all__)


@pytest.mark.parametrize("room", ROOMS)
def test_rooms_list_their_names(room):
    names = listed(source(room))
    assert len(names) == len(set(names)) > 0
    module = importlib.import_module(f"candidly.{room}")
    assert [name for name in names if not hasattr(module, name)] == []


def imported(code):
    """Return what a text of code imports from the library: pairs of module and name; None is the module itself."""
    for node in ast.walk(ast.parse(code)):
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "candidly":
            yield from ((node.module, alias.name) for alias in node.names)
        elif isinstance(node, ast.Import):
            yield from ((alias.name, None) for alias in node.names if alias.name.split(".")[0] == "candidly")


def hidden(code):
    """Return what a text of code imports that is not public."""
    return [
        (module, name)
        for module, name in imported(code)
        if module not in PUBLIC or (name is not None and name not in PUBLIC[module])
    ]


@pytest.mark.parametrize(
    ("code", "found"),
    [
        ("from candidly import fit, PartialLabelClassifier\nimport candidly.bench\nimport numpy", []),
        ("from candidly.engine import Predict", []),
        ("from candidly.engine.fitting import fit", [("candidly.engine.fitting", "fit")]),
        ("from candidly import store", [("candidly", "store")]),
        ("def f():\n    import candidly.cli", [("candidly.cli", None)]),
    ],
)
def test_the_check_of_imports_sees(code, found):
    assert hidden(code) == found


@pytest.mark.parametrize("path", [*PAGES, *EXAMPLES], ids=lambda path: str(path.relative_to(ROOT)))
def test_pages_and_examples_use_public_names(path):
    text = path.read_text(encoding="utf-8")
    codes = re.findall(r"^```python\n(.*?)^```", text, re.DOTALL | re.MULTILINE) if path.suffix == ".md" else [text]
    assert [one for code in codes for one in hidden(code)] == []


REVEALED = """
import candidly

reveal_type(candidly.fit)
reveal_type(candidly.PartialLabelClassifier().fit)
reveal_type(candidly.PartialLabelClassifier().audit)
reveal_type(candidly.Problem.of)
reveal_type(candidly.Conformal)
reveal_type(candidly.METHODS)
reveal_type(candidly.evaluate)
reveal_type(candidly.corrupt.uniform)
reveal_type(candidly.data.load)
reveal_type(candidly.bench.sweep)
reveal_type(candidly.report.write)
candidly.nonsense
"""


def test_type_checkers_see_signatures(tmp_path):
    pytest.importorskip("mypy")
    path = tmp_path / "revealed.py"
    path.write_text(REVEALED)
    command = [sys.executable, "-m", "mypy", "--config-file", "pyproject.toml", str(path)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    found = re.findall(r'Revealed type is "(.*)"', done.stdout)
    assert len(found) == REVEALED.count("reveal_type"), done.stdout + done.stderr
    assert [one for one in found if one == "Any" or ("def (" not in one and "dict[" not in one)] == []
    assert "-> candidly.engine.model.Model" in found[0]
    assert 'Module has no attribute "nonsense"' in done.stdout
