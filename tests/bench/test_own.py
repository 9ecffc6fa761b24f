"""Custom methods and cleaners from files: how they are loaded, named, hashed and run."""

from contextlib import nullcontext

import pytest

from candidly import Cleaner, Proden, Recipe
from candidly.bench import Spec, read_own, read_spec, sweep
from candidly.bench.own import code_of
from candidly.bench.processes import Processes

MINE = """
from dataclasses import dataclass
from candidly import Cleaner, OneNetwork, Method, masked_softmax, soft_ce, uniform_weights

FACTOR = 1.0

def scale(q):
    return FACTOR * q

@dataclass
class Slow(OneNetwork):
    momentum: float = 0.9

    def setup(self, problem, build_net):
        self.net, self.q = build_net(), uniform_weights(problem.sets, problem.dtype)

    def step(self, batch, phase):
        z = self.net(batch.x)
        q = batch.take(self.q)
        new = masked_softmax(z.detach(), batch.candidates(z.detach().softmax(-1)))
        batch.put(self.q, scale(self.momentum * q + (1 - self.momentum) * new))
        return soft_ce(q, z)

class Keep(Cleaner):
    pass

class Other:
    pass

@dataclass
class Strict(Cleaner):
    level: float
"""


@pytest.fixture
def mine(tmp_path):
    path = tmp_path / "mine.py"
    path.write_text(MINE)
    return path


def test_methods_and_cleaners_are_named_by_their_class(mine):
    own = read_own(f"{mine}:Slow", f"{mine}:Keep")
    assert list(own) == ["slow", "keep"]
    assert own["slow"].momentum == 0.9
    assert isinstance(own["keep"], Cleaner)
    spec = Spec(("lost",), ("keep+slow", "slow"), own=own)
    assert spec.parts("keep+slow") == (own["slow"], own["keep"])


def test_a_spec_can_name_them_and_set_their_settings(mine, tmp_path):
    path = tmp_path / "spec.toml"
    path.write_text('datasets = ["lost"]\nmethods = ["slow", "fast"]\n[own.fast]\nkind = "slow"\nmomentum = 0.1\n')
    spec = read_spec(path, read_own(f"{mine}:Slow"))
    assert [spec.parts(name)[0].momentum for name in ("slow", "fast")] == [0.9, 0.1]
    path.write_text(path.read_text().replace("momentum", "momentun"))
    with pytest.raises(ValueError, match=r"own.fast has the unknown key 'momentun' .did you mean 'momentum'"):
        read_spec(path, read_own(f"{mine}:Slow"))


def test_any_change_of_the_file_changes_the_hash(mine):
    before = code_of(read_own(f"{mine}:Slow")["slow"])
    assert code_of(read_own(f"{mine}:Slow")["slow"]) == before
    mine.write_text(MINE.replace("FACTOR = 1.0", "FACTOR = 0.5"))
    assert code_of(read_own(f"{mine}:Slow")["slow"]) != before
    assert code_of(Proden()) is None


@pytest.mark.parametrize("workers", [0, 2])
def test_a_sweep_runs_them(mine, tmp_path, table, workers):
    """Workers that live on notice that the file has changed."""

    def run(executor):
        own = read_own(f"{mine}:Slow", f"{mine}:Keep")
        recipe = Recipe("short", epochs=2)
        spec = Spec((str(table),), ("slow", "keep+slow"), seeds=(0,), recipe=recipe, own=own)
        return sweep(spec, tmp_path / "runs", device="cpu", executor=executor)

    with Processes(workers) if workers else nullcontext() as executor:
        assert (len(run(executor).done), len(run(executor).skipped)) == (2, 2)
        mine.write_text(MINE + "\n# changed")
        changed = run(executor)
    assert (len(changed.done), changed.failed) == (2, {})


@pytest.mark.parametrize(
    ("place", "message"),
    [
        ("mine.py", "own is '.*mine.py'; write it as FILE.py:CLASS, such as mine.py:Mine"),
        ("mine.txt:Slow", "write it as FILE.py:CLASS"),
        ("mine.py:", "write it as FILE.py:CLASS"),
        ("mine.py:Slwo", "mine.py has no class 'Slwo' .did you mean 'Slow'"),
        ("mine.py:scale", "mine.py has no class 'scale'"),
        ("mine.py:Other", "Other in .*mine.py is not a method or a cleaner"),
        ("mine.py:Method", "Method in .*mine.py is not a method or a cleaner"),
        ("mine.py:Strict", "mine.py: TypeError: .*level"),
        (".py:Slow", "is not a file"),
    ],
)
def test_refuses(mine, place, message):
    (mine.parent / ".py").mkdir()
    with pytest.raises((OSError, ValueError), match=message):
        read_own(f"{mine.parent}/{place}")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("x = 1\ny = x +\n", "bad.py, line 2: SyntaxError: invalid syntax"),
        ("x = 1\n\nraise KeyError('oh')\n", "bad.py, line 3: KeyError: 'oh'; correct the file"),
        ("import no_such_module\n", "bad.py, line 1: ModuleNotFoundError: No module named 'no_such_module'"),
        ("def f():\n    return 1 / 0\n\nf()\n", "bad.py, line 2: ZeroDivisionError"),
        ("raise SystemExit(3)\n", "bad.py, line 1: SystemExit: 3"),
        ("x = '\0'\n", "bad.py"),
        ("# caf\xe9".encode("latin-1"), "bad.py"),
        ("", "bad.py has no class 'Mine'; check the name"),
        ("from candidly import Proden\nclass Mine(Proden):\n    def __init__(self):\n        self.x", "line 4: Attrib"),
    ],
)
def test_errors_in_the_file_are_one_line(tmp_path, text, message):
    path = tmp_path / "bad.py"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    with pytest.raises(ValueError, match=message):
        read_own(f"{path}:Mine")


def test_a_missing_file(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"mine\.py"):
        read_own(f"{tmp_path}/mine.py:Mine")


def test_two_classes_with_one_name(mine, tmp_path):
    (tmp_path / "other.py").write_text("from candidly import Proden\nclass SLOW(Proden):\n    pass\n")
    with pytest.raises(ValueError, match="own has two classes that would be called 'slow'; rename one of them"):
        read_own(f"{mine}:Slow", f"{tmp_path}/other.py:SLOW")
