"""The shape of the package: the plan in docs/architecture.md is the code's, imports point down, importing is cheap."""

import ast
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import candidly
from candidly.methods import METHODS

PACKAGE = Path(candidly.__file__).parent
REPOSITORY = PACKAGE.parents[1]
PLAN = (REPOSITORY / "docs" / "architecture.md").read_text(encoding="utf-8")
FACADE = {"__init__", "__main__"}  # the package itself: it names the rooms, and imports them on first use
FILES = {path.relative_to(PACKAGE).with_suffix("").as_posix(): path for path in sorted(PACKAGE.rglob("*.py"))}
MODULES = {name: path for name, path in FILES.items() if name not in FACADE}
PICKLES = {"pickle", "_pickle", "cPickle", "cloudpickle", "dill", "shelve", "marshal"}
PICKLERS = {"torch.save", "torch.load", "joblib.dump", "joblib.load"}


def levels(plan):
    """Return the level of each room, and the packages that its modules may import, by the table of levels."""
    found = {}
    for level, rooms, packages in re.findall(r"^\| (\d) \| (.*?) \|.*?\| (.*?) \|$", plan, re.MULTILINE):
        for room in re.findall(r"`(\w+)`", rooms):
            found[room] = int(level), set(re.findall(r"`(\w+)`", packages))
    return found


def described(plan):
    """Return what the plan says of each module."""
    return dict(re.findall(r"^\| `([\w/]+)` \| (.*) \|$", plan, re.MULTILINE))


LEVELS = levels(PLAN)
THIRD_PARTY = {room: set().union(*(p for k, p in LEVELS.values() if k <= level)) for room, (level, _) in LEVELS.items()}


def imports(source, module):
    """Return the dotted names that a source text imports, wherever it does, and whether it does so in a function."""
    tree, package = ast.parse(source), ["candidly", *Path(module).parts[:-1]]
    late = {id(one) for node in ast.walk(tree) if isinstance(node, ast.FunctionDef) for one in ast.walk(node)}
    for node in ast.walk(tree):
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
            late |= {id(one) for one in ast.walk(node)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((alias.name, id(node) in late) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else []
            parts = [*base, *([node.module] if node.module else [])]
            yield from ((".".join([*parts, alias.name]), id(node) in late) for alias in node.names)


def forbidden(module, source):
    """Return what a module imports but may not: what lies in its own level or above, and other packages."""
    room, wrong = module.split("/")[0], set()
    for name, late in imports(source, module):
        top, *rest = name.split(".")
        if top == "candidly":
            other = rest[0] if rest else ""
            down = other == room or (other in LEVELS and LEVELS[other][0] < LEVELS[room][0])
            if not (down or other == "__version__"):
                wrong.add(name)
        elif top not in sys.stdlib_module_names and top not in THIRD_PARTY[room] and not (late and top in OPTIONAL):
            wrong.add(name)
    return wrong


# Extras, imported by the functions that need them.
OPTIONAL = {
    *("PIL", "distributed", "jinja2", "matplotlib", "onnx", "onnxscript", "pooch", "ray", "requests", "starlette"),
    *("triton", "uvicorn"),
}


def test_the_plan_lists_every_module():
    assert described(PLAN).keys() == MODULES.keys()
    assert {name.split("/")[0] for name in MODULES} == LEVELS.keys()


@pytest.mark.parametrize("name", MODULES)
def test_the_plan_says_what_the_module_says(name):
    docstring = ast.get_docstring(ast.parse(MODULES[name].read_text(encoding="utf-8")))
    assert described(PLAN)[name] == docstring.splitlines()[0].replace("|", r"\|")


@pytest.mark.parametrize("name", MODULES)
def test_imports_point_down(name):
    assert not forbidden(name, MODULES[name].read_text(encoding="utf-8"))


@pytest.mark.parametrize(
    ("name", "source", "found"),
    [
        ("metrics", "import sklearn.metrics", {"sklearn.metrics"}),
        ("metrics", "def f():\n    from scipy import stats", {"scipy.stats"}),
        ("metrics", "from candidly.data import load", {"candidly.data.load"}),
        ("engine/model", "def f():\n    from candidly.methods import METHODS", {"candidly.methods.METHODS"}),
        ("engine/model", "from ..conformal import aps", {"candidly.conformal.aps"}),  # another room of the same level
        ("engine/model", "import candidly", {"candidly"}),
        ("engine/model", "from candidly import fit", {"candidly.fit"}),
        ("methods/cc", "from . import proden\nfrom ..bench import run", {"candidly.bench.run"}),
        ("report/view", "import jinja2", {"jinja2"}),
        ("report/view", "def f():\n    import jinja2", set()),
        ("bench/run", "import scipy, pyarrow\nfrom candidly import __version__", set()),
        ("methods/cc", "import math, torch\nfrom candidly.engine import Method\nfrom .proden import Proden", set()),
    ],
)
def test_the_check_of_imports_sees(name, source, found):
    assert forbidden(name, source) == found


def test_rooms_are_few():
    shown = {path.name for path in PACKAGE.iterdir()} - {"__init__.py", "__main__.py", "py.typed", "__pycache__"}
    assert len(shown) <= 17


def pickling(source):
    """Return the ways in which a source text pickles; torch reads with `weights_only=True` without running code."""
    found = {name for name, _ in imports(source, "metrics") if name.split(".")[0] in PICKLES}
    tree = ast.parse(source)
    calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call)]
    safe = {id(call.func) for call in calls if "weights_only=True" in map(ast.unparse, call.keywords)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and ast.unparse(node) in PICKLERS and id(node) not in safe:
            found.add(ast.unparse(node))
        if isinstance(node, ast.keyword) and node.arg == "allow_pickle" and ast.unparse(node.value) != "False":
            found.add("allow_pickle")
    return found


@pytest.mark.parametrize("name", FILES)
def test_no_file_pickles(name):
    assert not pickling(FILES[name].read_text(encoding="utf-8"))


@pytest.mark.parametrize(
    "source",
    [
        "import pickle",
        "from pickle import loads",
        "torch.save(x, 'f')",
        "torch.load('f')",
        "torch.load('f', weights_only=False)",
        "g(torch.load, weights_only=True)",
        "np.load('f', allow_pickle=True)",
        "import dill",
    ],
)
def test_the_pickle_check_sees(source):
    assert pickling(source)


def test_the_pickle_check_allows_weights():
    assert not pickling("torch.load('f', weights_only=True)")


def python(*arguments):
    """Return what a fresh interpreter prints."""
    environment = {"PYTHONPATH": str(PACKAGE.parent), "PATH": os.defpath, "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-W", "error", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def heavy_modules_after(code):
    """Return which heavy packages the code imports, and what it prints."""
    heavy = {"torch", "sklearn", "scipy", "matplotlib", "pyarrow", "pandas"}
    ask = f"import sys\nprint('imported:', *({heavy} & sys.modules.keys()))"
    *printed, last = python("-c", f"{code}\n{ask}").splitlines()
    return set(last.split()[1:]), printed


def test_the_import_check_sees():
    assert heavy_modules_after("import candidly.engine")[0] == {"torch"}


def test_importing_the_package_is_cheap():
    imported, printed = heavy_modules_after("import candidly\nprint(candidly.__file__)")
    assert imported == set()
    assert printed == [str(PACKAGE / "__init__.py")]


def test_help_is_cheap():
    call = "try:\n    candidly.cli.main(['--help'])\nexcept SystemExit as end:\n    assert not end.code"
    imported, printed = heavy_modules_after(f"import candidly.cli\n{call}")
    assert imported == set()
    assert "candidly" in "".join(printed)


def test_the_package_runs_as_a_module():
    assert "candidly" in python("-m", "candidly", "--help")


@pytest.mark.parametrize("name", METHODS)
def test_every_method_has_a_page(name):
    page = REPOSITORY / "docs" / "methods" / f"{name}.md"
    assert page.is_file(), f"{page} is missing"
    assert len(page.read_text(encoding="utf-8").split()) > 50
