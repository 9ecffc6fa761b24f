"""Commands for experiments: demo, methods, datasets, bench, table."""

from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any, Literal

import tyro

from candidly.cli.options import File, Flag, Number, Text


def demo(seeds: int = 5, device: str = "auto") -> None:
    """Compare four methods on handwritten digits with ambiguous labels, in about a minute.

    The data are scikit-learn's 8x8 digits with instance-dependent candidate sets: a network that was trained on the
    true labels makes confusable digits candidates of each other.

    Args:
        seeds: How many random splits to average over; they train together.
        device: Where to train: auto, cpu or cuda.
    """
    from candidly.cli.demo import run

    run(seeds, device)


def methods() -> None:
    """List the methods."""
    from candidly.methods import METHODS

    for name, method in METHODS.items():
        print(f"{name:8} {(method.__doc__ or '').splitlines()[0]}")


def datasets(
    name: Annotated[str | None, tyro.conf.Positional, tyro.conf.arg(metavar="[NAME]", help_behavior_hint="")] = None,
    *,
    download: Flag = False,
    data: File = None,
) -> None:
    """List the datasets that are known by name, or tell more about one of them.

    Args:
        name: The dataset to tell about: size, source, licence, citation, and whether its files are there.
        download: Download its files if they are missing.
        data: A folder with the datasets' files, into which downloads go; left out, the user's cache.
    """
    from candidly.data import REGISTRY, load

    if name is None:
        for entry in REGISTRY.values():
            size = f"{entry.shape[0]} × {'×'.join(map(str, entry.shape[1:]))}"
            print(f"{entry.name:11}{size:18}{entry.num_classes:4} classes   {entry.licence}")
        return
    if name in REGISTRY:
        entry = REGISTRY[name]
        print(f"source: {entry.page}\nlicence: {entry.licence}\ncite: {entry.citation}")
    print(load(name, data, download=download))


def bench(
    spec: Annotated[
        Path | None, tyro.conf.Positional, tyro.conf.arg(metavar="[SPEC.toml]", help_behavior_hint="")
    ] = None,
    *,
    suite: Text = None,
    datasets: Text = None,
    methods: Text = None,
    cleaners: Text = None,
    seeds: Text = None,
    inits: Number = None,
    protocol: Text = None,
    recipe: Text = None,
    epochs: Number = None,
    out: Path = Path("runs"),
    data: File = None,
    download: Flag = False,
    device: str = "auto",
    jobs: Number = None,
    retry_failed: Flag = False,
) -> int:
    """Run experiments: every method on every dataset, all seeds of a run as one stacked fit.

    What is done is skipped, so a killed sweep goes on when it is called again. Say what to run with a TOML file, with a
    suite, or with --datasets and --methods; other options override what the first two say.

    Args:
        spec: A TOML file with the options below, and with settings of your own for methods and cleaners.
        suite: One of the paper's evaluations: uai2025-realworld, uai2025-images or uai2025-ablation.
        datasets: Names or files, with commas between them. After a plus, how candidate sets are made from true labels:
            digits+uniform-0.3.
        methods: Names with commas between them, such as proden,conf+proden,clsp+proden.
        cleaners: Cleaners to run all methods with that name none, such as none,conf,clsp (default: none).
        seeds: Such as 0-4 or 0,2,7; each is a split and an initialisation (default: 0-4).
        inits: Initialisations per seed (default: 1).
        protocol: How datasets are prepared and split: default or uai2025 (default: default).
        recipe: How to train: uai2025 or quick (default: uai2025).
        epochs: Train that recipe for so many epochs.
        out: The folder for the runs.
        data: A folder with the datasets' files.
        download: Download datasets that are missing.
        device: Where to train: auto, cpu or cuda.
        jobs: How many runs train at the same time; by default 1, and up to 4 on CUDA, which one alone does not fill.
        retry_failed: Try again what failed before.
    """
    from candidly.bench import SUITES, Spec, read_spec, sweep
    from candidly.engine.recipe import find_recipe

    given: dict[str, Any] = {"datasets": datasets, "methods": methods, "cleaners": cleaners, "seeds": seeds}
    given |= {"inits": inits, "protocol": protocol, "recipe": recipe}
    given = {name: value for name, value in given.items() if value is not None}
    if suite is not None and suite not in SUITES:
        raise ValueError(f"unknown suite {suite!r}; use one of {', '.join(SUITES)}")
    if spec is not None and suite is not None:
        raise ValueError("both a file and a suite were given; write suite = ... into the file")
    if spec is None and suite is None and not (datasets and methods):
        raise ValueError("say what to run: a TOML file, --suite, or --datasets and --methods")
    chosen = replace(read_spec(spec), **given) if spec is not None else Spec(**(SUITES.get(suite or "", {}) | given))
    if epochs is not None:
        chosen = replace(chosen, recipe=replace(find_recipe(chosen.recipe), name="custom", epochs=epochs))
    root = None if data is None else str(data)
    outcome = sweep(
        chosen, out, root=root, download=download, device=device, jobs=jobs, retry_failed=retry_failed, progress=True
    )
    print(outcome)
    return 1 if outcome.failed else 0


def table(
    folders: Annotated[
        tuple[Path, ...], tyro.conf.Positional, tyro.conf.arg(metavar="FOLDER ...", help_behavior_hint="")
    ],
    *,
    style: Literal["text", "markdown", "latex", "csv"] = "text",
    split: Literal["test", "train"] = "test",
    against: File = None,
    diagram: File = None,
    into: File = None,
) -> None:
    """Make a table of results: means and spreads, wins, ties and losses, average ranks.

    Args:
        folders: Folders with runs, or with Parquet files of predictions made elsewhere (columns dataset, method, seed,
            split, row, true, predicted, confidence).
        style: How to write it.
        split: Whether to score test or training rows.
        against: A CSV file with published accuracies (columns method, dataset, seed, test_accuracy) to compare with.
        diagram: Also draw the critical-difference diagram into this file (.svg, .pdf or .png).
        into: Write into this Markdown page, between its lines "<!-- begin candidly table -->" and
            "<!-- end candidly table -->", instead of printing.
    """
    from candidly.bench import diagram as diagrams
    from candidly.bench import read, read_csv
    from candidly.bench import table as tables

    if into is not None and style not in ("text", "markdown"):
        raise ValueError(f"a page is written in Markdown, not in {style}; leave --style or --into out")
    found = read(folders, split=split)
    published = None if against is None else read_csv(against)
    text = tables.render(found, style=style if into is None else "markdown", against=published)
    if diagram is not None:
        diagrams.draw(found, diagram)
    if into is None:
        print(text, end="")
    else:
        tables.insert(into, text)
