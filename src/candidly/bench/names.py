"""Names of methods with their cleaners, such as ``conf+proden``, and the names that version 0.1 used.

A name has up to three parts: ``conf+proden (no correction)`` is the method ``proden`` with the cleaner
``conf (no correction)``.
"""

# Version 0.1 called the cleaner `Conformal()` "revocable". That name is part of the hashes and the folder names of all
# results made so far, so it stays there: a renamed cleaner must not make its results look as if they were missing.
RENAMED = {"revocable": "conformal"}
_STORED = {new: old for old, new in RENAMED.items()}


def split(name: str) -> tuple[str, str, str]:
    """Return the cleaner, the method and the suffix of a name; the first and the last may be empty.

    Examples
    --------
    >>> split("conf+proden (no correction)"), split("cc")
    (('conf', 'proden', '(no correction)'), ('', 'cc', ''))
    """
    body, bracket, suffix = name.partition("(") if name.endswith(")") else (name, "", "")
    cleaner, _, method = body.rstrip().rpartition("+")
    return cleaner, method, bracket + suffix


def join(cleaner: str, method: str) -> str:
    """Name a method with a cleaner, whose suffix goes last; "none" leaves the method's name as it is.

    Examples
    --------
    >>> join("conf (no correction)", "proden"), join("none", "cc")
    ('conf+proden (no correction)', 'cc')
    """
    name, space, suffix = cleaner.partition(" ")
    return method if cleaner == "none" else f"{name}+{method}{space}{suffix}"


def current(name: str) -> str:
    """Return the present name of a method with a cleaner that version 0.1 may have named.

    Examples
    --------
    >>> current("revocable+proden"), current("conf+proden")
    ('conformal+proden', 'conf+proden')
    """
    return _rename(name, RENAMED)


def stored(name: str) -> str:
    """Return the name under which runs of a method are hashed and kept on disk.

    Examples
    --------
    >>> stored("conformal+proden"), stored("conf+proden")
    ('revocable+proden', 'conf+proden')
    """
    return _rename(name, _STORED)


def _rename(name: str, names: dict[str, str]) -> str:
    """Rename the cleaner; a method without one keeps its name, also where a cleaner has the same."""
    cleaner, plus, method = name.partition("+")
    return f"{names.get(cleaner, cleaner)}+{method}" if plus else name
