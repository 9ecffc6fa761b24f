"""Write the tables of the README and of the guides in docs/guides into the current folder.

Run it with ``python examples/make_birds.py``. The birds are synthetic, and easier to tell apart than real ones.
"""

import csv
import json

import numpy as np

SPECIES = {  # weight in grams, wing length in millimetres, usual colours
    "dunnock": (21, 70, ("brown", "grey")),
    "finch": (23, 87, ("red", "grey")),
    "robin": (17, 73, ("red", "brown")),
    "sparrow": (29, 78, ("brown", "grey")),
    "wren": (9, 48, ("brown",)),
}


def measure(name, rng):
    """Return the features of a bird; one wing in ten could not be measured."""
    weight, wing, colours = SPECIES[name]
    length = f"{rng.normal(wing, 3):.0f}" if rng.random() < 0.9 else ""
    return f"{rng.normal(weight, 2):.1f}", length, str(rng.choice(colours))


def list_candidates(name, rng):
    """Return what an observer could not rule out: the true species, and each other one with probability 1/3."""
    return "|".join(other for other in SPECIES if other == name or rng.random() < 1 / 3)


def cast_votes(bird, name, rng):
    """Return the votes of three observers, each of which is right with probability 3/4."""
    others = [other for other in SPECIES if other != name]
    return [(bird, who, name if rng.random() < 0.75 else str(rng.choice(others))) for who in ("ann", "bob", "eve")]


def as_tasks(birds, votes, checked):
    """Return what Label Studio exports: the votes, and ground truth for the birds in `checked`."""
    tasks = {}
    for number, (bird, weight, wing, colour) in enumerate(birds, 1):
        data = {"id": bird, "weight": weight, "wing": wing, "colour": colour}
        tasks[bird] = {"id": number, "data": data, "annotations": []}
    truth = [(bird, "expert", name) for bird, name in checked]
    for bird, who, name in [*votes, *truth]:
        result = {"type": "choices", "from_name": "species", "to_name": "weight", "value": {"choices": [name]}}
        annotation = {"completed_by": {"email": f"{who}@example.org"}, "ground_truth": who == "expert"}
        tasks[bird]["annotations"].append(annotation | {"was_cancelled": False, "result": [result]})
    return list(tasks.values())


def write(path, header, rows):
    """Write a table."""
    with open(path, "w", newline="", encoding="utf-8") as file:
        csv.writer(file, lineterminator="\n").writerows([header, *rows])
    print(f"{path}: {len(rows)} rows, columns {', '.join(header)}")


def main():
    """Write four tables, and the votes as an export of Label Studio."""
    rng = np.random.default_rng(0)
    names = rng.choice(list(SPECIES), size=200).tolist()
    birds = [(f"b{number:03}", *measure(name, rng)) for number, name in enumerate(names, 1)]
    header = ("id", "weight", "wing", "colour")
    known, labels = birds[:150], names[:150]
    sets = [(*bird, list_candidates(name, rng), name) for bird, name in zip(known, labels, strict=True)]
    votes = [vote for bird, name in zip(known, labels, strict=True) for vote in cast_votes(bird[0], name, rng)]
    write("birds.csv", (*header, "candidates", "label"), sets)
    write("new-birds.csv", header, birds[150:])
    write("measures.csv", header, known)
    write("votes.csv", ("task", "worker", "label"), votes)
    tasks = as_tasks(known, votes, [(bird[0], name) for bird, name in zip(known[:30], labels, strict=False)])
    with open("label-studio.json", "w", encoding="utf-8") as file:
        json.dump(tasks, file, indent=1)
    print(f"label-studio.json: {len(tasks)} tasks")


if __name__ == "__main__":
    main()
