"""What cleaning found, as one self-contained HTML page.

The page loads nothing: style and script are in it, and its content security policy allows these two by their hashes and
nothing else. Texts come from users' tables, so every one of them is made visible and escaped.
"""

import base64
import hashlib
import os
from importlib import resources

from candidly.report.facts import Findings
from candidly.report.summary import summarise
from candidly.report.view import view
from candidly.store import replace

__all__ = ["Findings", "render", "summarise", "write"]


def render(findings: Findings) -> str:
    """Make the page.

    Parameters
    ----------
    findings : Findings

    Returns
    -------
    str
        HTML; the same findings give the same page.

    Raises
    ------
    ModuleNotFoundError
        If jinja2 is not installed.

    Examples
    --------
    >>> run = {"title": "birds.csv", "version": "0.1.0", "date": "2026-01-31", "seconds": 2.5, "device": "cpu"}
    >>> findings = Findings(**run, classes=["owl", "wren"], rows=3, changed=1, before=[1, 2], after=[2, 1])
    >>> render(findings).splitlines()[0]
    '<!DOCTYPE html>'
    """
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
    return page.render(view(findings), style=style, script=script, policy=policy) + "\n"


def write(findings: Findings, path: str | os.PathLike[str]) -> None:
    """Write the page into a file, whole or not at all.

    Parameters
    ----------
    findings : Findings
    path : path
        Replaced if it exists.

    Examples
    --------
    >>> import tempfile
    >>> from pathlib import Path
    >>> run = {"title": "birds.csv", "version": "0.1.0", "date": "2026-01-31", "seconds": 2.5, "device": "cpu"}
    >>> findings = Findings(**run, classes=["owl", "wren"], rows=3, changed=1, before=[1, 2], after=[2, 1])
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     write(findings, Path(folder, "page.html"))
    ...     Path(folder, "page.html").read_text(encoding="utf-8") == render(findings)
    True
    """
    replace(path, render(findings).encode())


def _read(name: str) -> str:
    return resources.files(__package__).joinpath(name).read_text(encoding="utf-8")


def _hash(text: str) -> str:
    return f"sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}"
