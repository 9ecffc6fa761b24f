"""Render the facts of a report as one self-contained HTML page.

The page loads nothing from elsewhere: style and script are part of it, and its content security policy allows only
these two, by their hashes. All texts may come from users' tables, so they are made visible and escaped.
"""

import base64
import hashlib
import os
from importlib import resources

from candidly.checks import arguments
from candidly.report.facts import ReportFacts
from candidly.report.view import view
from candidly.store import replace


def render(facts: ReportFacts) -> str:
    """Return the HTML page; the same facts give the same page.

    Parameters
    ----------
    facts : ReportFacts
        What `summarise` returned.

    Raises
    ------
    ModuleNotFoundError
        If jinja2 is not installed.

    Examples
    --------
    >>> run = {"title": "birds.csv", "version": "0.2.0", "date": "2026-01-31", "seconds": 2.5, "device": "cpu"}
    >>> facts = ReportFacts(**run, classes=["owl", "wren"], rows=3, changed=1, before=[1, 2], after=[2, 1])
    >>> render(facts).splitlines()[0]
    '<!DOCTYPE html>'
    """
    arguments.instance("facts", facts, ReportFacts, "what candidly.report.summarise returned")
    try:
        from jinja2 import Environment, StrictUndefined
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(
            "reports need jinja2, which is not installed; run `pip install 'candidly[report]'`"
        ) from error
    environment = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    style, script = _read("page.css"), _read("page.js")
    policy = (
        f"default-src 'none'; style-src '{_hash(style)}'; script-src '{_hash(script)}'; "
        "base-uri 'none'; form-action 'none'"
    )
    page = environment.from_string(_read("page.html"))
    return page.render(view(facts), style=style, script=script, policy=policy) + "\n"


def write(facts: ReportFacts, path: str | os.PathLike[str]) -> None:
    """Write the HTML page to a file; an interrupted write leaves no incomplete file.

    Parameters
    ----------
    facts : ReportFacts
        What `summarise` returned.
    path : path
        Replaced if it exists.

    Examples
    --------
    >>> import tempfile
    >>> from pathlib import Path
    >>> run = {"title": "birds.csv", "version": "0.2.0", "date": "2026-01-31", "seconds": 2.5, "device": "cpu"}
    >>> facts = ReportFacts(**run, classes=["owl", "wren"], rows=3, changed=1, before=[1, 2], after=[2, 1])
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     write(facts, Path(folder, "page.html"))
    ...     Path(folder, "page.html").read_text(encoding="utf-8") == render(facts)
    True
    """
    target = arguments.path("path", path)
    replace(target, render(facts).encode())


def _read(name: str) -> str:
    return resources.files(__package__).joinpath("page", name).read_text(encoding="utf-8")


def _hash(text: str) -> str:
    return f"sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}"
