"""Findings that lie beside a model, and the page on them."""

from pathlib import Path

from candidly import store
from candidly.cli.reading import split
from candidly.report.facts import Findings
from candidly.tables import files

ROLES, DROPPED = ("candidates", "id", "labels"), "dropped columns"


def read_findings(model: Path) -> Findings | None:
    """Read the findings that were saved with a model, if there are some."""
    path = model / "findings.json"
    if not path.is_file():
        return None
    facts = store.read_json(path)
    try:
        return Findings.from_json(facts)
    except ValueError as error:
        raise ValueError(f"{path} cannot be read: {error}") from None


def known_columns(model: Path) -> dict[str, list[str]]:
    """Return the columns that are no features, by what they were when the model was trained."""
    findings = read_findings(model)
    settings = {} if findings is None else findings.settings
    known = {role: settings.get(f"{role} column") for role in ROLES}
    dropped = settings.get(DROPPED)
    columns = {role: [name] for role, name in known.items() if isinstance(name, str)}
    return columns | {DROPPED: split(dropped, DROPPED) if isinstance(dropped, str) else []}


def write_page(findings: Findings, page: Path | None) -> None:
    """Write the page, if one was asked for."""
    from candidly.report import write

    if page is not None:
        with files.writing(page):
            write(findings, page)
