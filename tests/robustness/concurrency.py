"""Let two processes save models to one folder while two others load them.

Run as a program, with the number of saves, it prints what each process did and what went wrong:

    python -m tests.robustness.concurrency 2000

Every model has a number in its facts, in its tensors and in an additional file. A read is mixed if they differ.
"""

import json
import os
import shutil
import sys
import tempfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from candidly import PartialLabelClassifier
from candidly.store import states

OLD_MODEL = Path(__file__).parents[1] / "estimator" / "saved_0_1" / "model"
WRITERS, READERS = 2, 2


def save(folder: Path, number: int) -> None:
    """Save the model with this number."""
    classifier = PartialLabelClassifier.load(OLD_MODEL)
    model = classifier.model_
    history = model.history | {"number": np.full((1, model.problem.runs), float(number))}
    problem = replace(model.problem, seeds=(number,) * model.problem.runs)
    classifier.model_ = replace(model, problem=problem, history=history)
    classifier.save(folder, {"number.txt": str(number).encode()})


def load(folder: Path) -> tuple[int, int]:
    """Return the numbers in the facts and in the tensors of the model."""
    model = PartialLabelClassifier.load(folder).model_
    return model.problem.seeds[0], int(model.history["number"][0, 0])


def write(folder: Path, saves: int, writer: int) -> dict[str, Any]:
    errors = []
    for number in range(writer, saves, WRITERS):
        try:
            save(folder, number)
        except Exception as error:
            errors.append(repr(error))
    return {"saves": len(range(writer, saves, WRITERS)), "errors": errors}


def keep_reading(folder: Path, ended: Path) -> dict[str, Any]:
    """Read until a file says that all is written."""
    reads, mixed, seen, errors = 0, 0, set(), []
    while not ended.exists():
        reads += 1
        try:
            facts, tensors = load(folder)
            more = int(states.read_more(folder, "number.txt"))  # perhaps of a newer model
        except Exception as error:
            errors.append(repr(error))
        else:
            mixed += facts != tensors
            seen |= {facts, more}
    return {"reads": reads, "mixed": mixed, "models": len(seen), "errors": errors}


def start(work: Callable[[], dict[str, Any]]) -> tuple[int, int]:
    """Run a function in a new process; return the process and a pipe with its result."""
    receive, send = os.pipe()
    child = os.fork()
    if child:
        os.close(send)
        return child, receive
    os.write(send, json.dumps(work()).encode())
    os._exit(0)


def result(process: tuple[int, int]) -> dict[str, Any]:
    with os.fdopen(process[1]) as pipe:
        found = json.loads(pipe.read())
    os.waitpid(process[0], 0)
    return dict(found)


def main(saves: int) -> None:
    torch.set_num_threads(1)
    place = Path(tempfile.mkdtemp())
    try:
        folder, ended = place / "model", place / "ended"
        save(folder, saves)
        readers = [start(lambda: keep_reading(folder, ended)) for _ in range(READERS)]
        writers = [start(lambda writer=writer: write(folder, saves, writer)) for writer in range(WRITERS)]  # type: ignore[misc]
        written = [result(process) for process in writers]
        ended.touch()
        read = [result(process) for process in readers]
        left = sorted(path.name.split(".", 1)[1] for path in folder.iterdir())
        print(json.dumps({"writers": written, "readers": read, "files": left}))
    finally:
        shutil.rmtree(place)


if __name__ == "__main__":
    main(int(sys.argv[1]))
