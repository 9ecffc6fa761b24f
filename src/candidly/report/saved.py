"""The file `report.json` beside a model: the facts of the report on its training."""

import json
from pathlib import Path

from candidly import store
from candidly.report.facts import ReportFacts

FILE = "report.json"
_FILE_0_1 = "findings.json"  # its name in version 0.1


def to_bytes(facts: ReportFacts) -> bytes:
    """Return the content of the file."""
    return json.dumps(facts.to_json()).encode()


def read(model: Path) -> ReportFacts:
    """Read the facts that were saved with a model, also by version 0.1."""
    path = model / FILE
    if not path.is_file() and (model / _FILE_0_1).is_file():
        path = model / _FILE_0_1
    if not path.is_file():
        raise FileNotFoundError(f"{path} does not exist; `candidly fit` writes it with the model")
    content = store.read_json(path)
    try:
        return ReportFacts.from_json(content)
    except ValueError as error:
        raise ValueError(f"{path} cannot be read: {error}") from None
