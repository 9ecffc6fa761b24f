"""The shape of the package: who may import what, how long files may be, what importing it costs."""

import ast
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import candidly
import candidly.methods
from candidly.methods import METHODS

PACKAGE = Path(candidly.methods.__file__).parents[1]
REPOSITORY = PACKAGE.parents[1]
FILES = {path.relative_to(PACKAGE).as_posix(): path for path in sorted(PACKAGE.rglob("*.py"))}
FACE = ("data", "bench", "crossfit", "estimator", "evaluation", "persistence", "scoring", "summary", "targets")
EDGE = ("report", "cli", "commands", "options", "demo", "wording")
OUTER = FACE + EDGE
FACADE = {"__init__.py", "__main__.py"}  # they name the outer rings, and import them late
CORE = {name: path for name, path in FILES.items() if name not in FACADE and re.split("[/.]", name)[0] not in OUTER}
ALLOWED = {"numpy", "torch"}
ALSO = {
    "store.py": {"safetensors"},
    "engine.py": {"tqdm"},
    **{f"{name}.py": {"narwhals"} for name in ("ballots", "frames", "intake")},
}
ALSO |= {f"kernels/{name}.py": {"triton"} for name in ("dense", "gamma", "images", "pixels")}
PICKLES = {"pickle", "_pickle", "cPickle", "cloudpickle", "dill", "shelve", "marshal"}
PICKLERS = {"torch.save", "torch.load", "joblib.dump", "joblib.load"}

every_file = pytest.mark.parametrize("name", FILES)


def imports(source, package="candidly"):
    """Return the dotted names of all modules that a source text imports, wherever it does."""
    found = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            base = package.split(".")[: len(package.split(".")) - node.level + 1] if node.level else []
            module = ".".join([*base, *([node.module] if node.module else [])])
            # `from candidly import store` imports a module, `from candidly.store import read` a name of one.
            found |= {f"{module}.{alias.name}" for alias in node.names} if module == "candidly" else {module}
    return found


def package_of(name):
    return ".".join(["candidly", *Path(name).parts[:-1]])


def forbidden(name, source):
    """Return what a core file imports but may not."""
    wrong = set()
    for module in imports(source, package_of(name)):
        top, *rest = module.split(".")
        if top == "candidly":
            if not rest or rest[0] in OUTER:
                wrong.add(module)
        elif top not in sys.stdlib_module_names | ALLOWED | ALSO.get(name, set()):
            wrong.add(module)
    return wrong


def test_the_core_is_found():
    assert {
        "problem.py",
        "engine.py",
        "cleaning/conformal.py",
        "store.py",
        "methods/base.py",
        "methods/proden.py",
    } <= CORE.keys()
    assert not CORE.keys() & {"cli.py", "estimator.py", "data/__init__.py", "__init__.py"}
    assert {f"methods/{name}.py" for name in METHODS} <= CORE.keys()


@pytest.mark.parametrize("name", CORE)
def test_the_core_imports_inwards_only(name):
    assert not forbidden(name, CORE[name].read_text())


@pytest.mark.parametrize(
    ("name", "source", "found"),
    [
        ("metrics.py", "import sklearn.metrics", {"sklearn.metrics"}),
        ("metrics.py", "def f():\n    from scipy import stats", {"scipy"}),
        ("metrics.py", "from candidly.data import load", {"candidly.data"}),
        ("metrics.py", "from candidly import estimator", {"candidly.estimator"}),
        ("metrics.py", "from . import cli", {"candidly.cli"}),
        ("methods/cc.py", "from ..bench import run", {"candidly.bench"}),
        ("metrics.py", "import candidly", {"candidly"}),
        ("metrics.py", "import tqdm", {"tqdm"}),
        ("metrics.py", "from safetensors.torch import save", {"safetensors.torch"}),
        ("engine.py", "import tqdm", set()),
        ("store.py", "from safetensors.torch import save", set()),
        ("methods/cc.py", "import math, torch\nfrom candidly.losses import soft_ce\nfrom .base import Method", set()),
    ],
)
def test_the_ring_check_sees(name, source, found):
    assert forbidden(name, source) == found


@every_file
def test_files_are_short(name):
    lines = len(FILES[name].read_text().splitlines())
    method = name.startswith("methods/") and Path(name).stem in METHODS
    assert lines < (120 if method else 400), f"{name} has {lines} lines"


def pickling(source):
    """Return the ways in which a source text pickles."""
    found = {module for module in imports(source) if module.split(".")[0] in PICKLES}
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Attribute) and ast.unparse(node) in PICKLERS:
            found.add(ast.unparse(node))
        if isinstance(node, ast.keyword) and node.arg == "allow_pickle" and ast.unparse(node.value) != "False":
            found.add("allow_pickle")
    return found


@every_file
def test_no_file_pickles(name):
    assert not pickling(FILES[name].read_text())


@pytest.mark.parametrize(
    "source",
    [
        "import pickle",
        "from pickle import loads",
        "torch.save(x, 'f')",
        "np.load('f', allow_pickle=True)",
        "import dill",
    ],
)
def test_the_pickle_check_sees(source):
    assert pickling(source)


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
    assert heavy_modules_after("import candidly.problem")[0] == {"torch"}


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


def test_public_names_resolve():
    assert {"fit", "Problem", "METHODS", "Conformal"} <= set(dir(candidly))
    assert all(getattr(candidly, name) is not None for name in dir(candidly))
    with pytest.raises(AttributeError, match="nonsense"):
        candidly.nonsense  # noqa: B018


@pytest.mark.parametrize("name", METHODS)
def test_every_method_has_a_page(name):
    page = REPOSITORY / "docs" / "methods" / f"{name}.md"
    assert page.is_file(), f"{page} is missing"
    assert len(page.read_text().split()) > 50
