"""Custom methods and cleaners: loading them from files, and hashing their code."""

import hashlib
import sys
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType

from candidly import store
from candidly.checks import arguments
from candidly.cleaning import Cleaner
from candidly.engine.description import source_hash
from candidly.messages import did_you_mean
from candidly.methods import Method

_MOST_BYTES = 2**24
_LOADED: dict[str, ModuleType] = {}  # by name, which ends in the hash of the file


def read_own(*places: str) -> dict[str, Method | Cleaner]:
    r"""Load custom methods and cleaners from Python files, which runs these files.

    Parameters
    ----------
    places : str
        ``FILE.py:CLASS`` each. The class is a `candidly.Method` or a `candidly.Cleaner` whose settings all have
        defaults.

    Returns
    -------
    dict of str to Method or Cleaner
        An instance of each class, by its name in lower case: the argument `own` of `Spec` and `read_spec`.

    Raises
    ------
    OSError, ValueError
        If a file cannot be read or fails, or if it has no such class.

    Notes
    -----
    The hash of a run covers the whole file, but not other files that it imports: a change there does not make
    finished runs train again.

    Examples
    --------
    >>> import tempfile
    >>> from pathlib import Path
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = Path(folder, "mine.py")
    ...     _ = path.write_text("from candidly import Proden\nclass Mine(Proden): pass\n")
    ...     own = read_own(f"{path}:Mine")
    >>> list(own)
    ['mine']
    """
    found: dict[str, Method | Cleaner] = {}
    for place in places:
        arguments.text("own", place, "a text such as mine.py:Mine")
        path, colon, name = place.rpartition(":")
        if not colon or not path.endswith(".py") or not name.isidentifier():
            raise ValueError(f"own is {place!r}; write it as FILE.py:CLASS, such as mine.py:Mine")
        kind = _find(_load(path), path, name)
        if name.lower() in found:
            raise ValueError(f"own has two classes that would be called {name.lower()!r}; rename one of them")
        with _explained(path):
            found[name.lower()] = kind()
    return found


def code_of(part: Method | Cleaner | None) -> str | None:
    """Hash the source code of a custom method or cleaner, the whole file if it was loaded from one.

    None stands for a part of this library, whose versions a summary records.
    """
    if part is None or type(part).__module__.startswith("candidly."):
        return None
    if type(part).__module__ in _LOADED:
        return type(part).__module__.rpartition("_")[2]
    return source_hash(type(part))


def _load(path: str) -> ModuleType:
    """Run a file as a module; the same content is run once.

    The module is not left in `sys.modules`: classes of unknown modules are sent to worker processes by value.
    """
    source = store.read_limited(path, _MOST_BYTES)
    name = f"candidly_own_{_hash(source)}"
    if name not in _LOADED:
        module = ModuleType(name)
        module.__file__ = path
        sys.modules[name] = module  # where dataclasses look for it
        try:
            with _explained(path):
                exec(compile(source, path, "exec"), module.__dict__)
        finally:
            del sys.modules[name]
        _LOADED[name] = module
    return _LOADED[name]


def _find(module: ModuleType, path: str, name: str) -> type[Method] | type[Cleaner]:
    """Return a class of a file."""
    kinds = {key: value for key, value in vars(module).items() if isinstance(value, type)}
    own = [
        key for key, value in kinds.items() if issubclass(value, Method | Cleaner) and value not in (Method, Cleaner)
    ]
    if name not in kinds:
        raise ValueError(f"{path} has no class {name!r}{did_you_mean(name, own or kinds)}; check the name")
    if name not in own:
        raise ValueError(f"{name} in {path} is not a method or a cleaner; derive it from candidly.Method or Cleaner")
    kind: type[Method] | type[Cleaner] = kinds[name]
    return kind


@contextmanager
def _explained(path: str) -> Iterator[None]:
    """Turn an error in a user's file into one line that names the file and the line."""
    try:
        yield
    except (Exception, SystemExit) as error:
        lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == path]
        if isinstance(error, SyntaxError) and error.filename == path:
            lines.append(error.lineno)
        where = f"{path}, line {lines[-1]}" if lines else path
        raise ValueError(f"{where}: {type(error).__name__}: {error}; correct the file") from error


def _hash(source: bytes) -> str:
    return hashlib.sha256(source).hexdigest()[:16]
