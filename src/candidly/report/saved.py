"""The file `report.json` of a saved model: the facts of the report on its training."""

import json
from pathlib import Path

from candidly.report.facts import ReportFacts
from candidly.store import states
from candidly.store.files import parse_json

FILE = "report.json"
_FILE_0_1 = "findings.json"  # its name in version 0.1


def to_bytes(facts: ReportFacts) -> bytes:
    """Return the content of the file."""
    return json.dumps(facts.to_json()).encode()


def read(model: Path) -> ReportFacts:
    """Read the facts that were saved with a model, also by version 0.1."""
    for name in (FILE, _FILE_0_1):
        try:
            content = states.read_more(model, name)
        except KeyError:
            continue
        try:
            return ReportFacts.from_json(parse_json(content, model / name))
        except ValueError as error:
            raise ValueError(f"{name} of {model} cannot be read: {error}") from None
    raise FileNotFoundError(f"{model} has no report; `candidly fit` saves one with the model")
