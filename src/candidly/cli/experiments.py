"""Commands for experiments: demo, methods, datasets, bench, table."""

from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any, Literal

from candidly.cli.options import File, Names, Number, Text, split_names
from candidly.cli.parsing import Named
from candidly.cli.terminal import say


def demo(seeds: int = 5, device: str = "auto") -> None:
    """Compare four methods on handwritten digits with ambiguous labels, in about a minute.

    The data are scikit-learn's 8x8 digits with instance-dependent candidate sets: a network that was trained on the
    true labels chooses digits that are easily confused with the true one.

    Args:
        seeds: Number of random splits to average over; all are trained together.
        device: Where to train: auto, cpu or cuda.
    """
    from candidly.cli.demo import run

    run(seeds, device)


def methods() -> None:
    """List the methods, and the scikit-learn classifiers for --base."""
    from candidly.estimator.learners import BASES
    from candidly.methods import METHODS

    for name, method in METHODS.items():
        summary, _, _ = (method.__doc__ or "").partition("\n")  # python -OO removes docstrings
        say(f"{name:8} {summary}")
    say(f"--base   {', '.join(BASES)}")


def datasets(
    name: Annotated[str | None, Named("NAME", positional=True)] = None,
    *,
    download: bool = False,
    data: File = None,
) -> None:
    """List the published datasets, or describe one of them.

    Args:
        name: Dataset to describe: size, source, licence, citation, and whether its files are present.
        download: Download its files if they are missing.
        data: Folder with the datasets' files, also for downloads (default: the user's cache).
    """
    from candidly.data import REGISTRY, load

    if name is None and (download or data is not None):
        option = "--download" if download else "--data"
        raise ValueError(f"{option} applies to one dataset; name it, or remove the option")
    if name is None:
        for entry in REGISTRY.values():
            size = f"{entry.shape[0]} × {'×'.join(map(str, entry.shape[1:]))}"
            say(f"{entry.name:11}{size:18}{entry.num_classes:4} classes   {entry.licence}")
        return
    if name in REGISTRY:
        entry = REGISTRY[name]
        say(f"source: {entry.page}\nlicence: {entry.licence}\ncite: {entry.citation}")
    say(str(load(name, data, download=download)))


def bench(
    spec: Annotated[Path | None, Named("SPEC.toml", positional=True)] = None,
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
    download: bool = False,
    device: str = "auto",
    jobs: Number = None,
    engine: Text = None,
    retry_failed: bool = False,
    own: Annotated[tuple[str, ...], Named("FILE.py:CLASS")] = (),
) -> int:
    """Run experiments: every method on every dataset, with all seeds of a run trained together.

    Finished runs are skipped, so an interrupted sweep continues when it is started again. Processes and machines can
    share a folder: each trains the runs that no other is training. Choose the runs with a TOML file, with --suite, or
    with --datasets and --methods; other options override the file or suite.

    Args:
        spec: TOML file with the options below; it can also set parameters of methods and cleaners.
        suite: One of the paper's evaluations: uai2025-realworld, uai2025-images or uai2025-ablation.
        datasets: Names or files, separated by commas; digits+uniform-0.3 makes candidate sets from true labels.
        methods: Names separated by commas, such as proden,conf+proden,clsp+proden.
        cleaners: Cleaners for the methods that name none, such as none,conf,clsp (default: none).
        seeds: Seeds, such as 0-4 or 0,2,7; each is a split and an initialisation (default: 0-4).
        inits: Number of initialisations per seed (default: 1).
        protocol: How to prepare and split datasets: default, uai2025 or grouped (default: default).
        recipe: How to train: uai2025, quick or, for colour images, fast or strong (default: uai2025).
        epochs: Number of epochs, instead of the recipe's.
        out: Folder for the runs.
        data: Folder with the datasets' files.
        download: Download missing datasets.
        device: Where to train: auto, cpu or cuda.
        jobs: Number of runs to train at the same time (default: 1; up to 4 on CUDA).
        engine: Cluster to train on: dask://HOST:PORT, ray://HOST:PORT, or ray for the one of this machine.
        retry_failed: Repeat runs that failed before.
        own: Method or cleaner in a Python file, which is run; its name is the class's in lower case. Can be repeated.
    """
    from candidly.bench import SUITES, Spec, find_executor, read_own, read_spec, sweep
    from candidly.engine.recipe import find_recipe

    given: dict[str, Any] = {"datasets": datasets, "methods": methods, "cleaners": cleaners, "seeds": seeds}
    given |= {"inits": inits, "protocol": protocol, "recipe": recipe}
    given = {name: value for name, value in given.items() if value is not None}
    if suite is not None and suite not in SUITES:
        raise ValueError(f"unknown suite {suite!r}; use one of {', '.join(SUITES)}")
    if spec is not None and suite is not None:
        raise ValueError("both a file and --suite were given; write suite = ... into the file instead")
    if spec is None and suite is None and not (datasets and methods):
        raise ValueError("nothing to run; give a TOML file, --suite, or --datasets and --methods")
    parts = read_own(*own)
    if spec is not None:
        chosen = replace(read_spec(spec, parts), **given)
    else:
        chosen = Spec(**(SUITES.get(suite or "", {}) | given), own=parts)
    if epochs is not None:
        chosen = replace(chosen, recipe=replace(find_recipe(chosen.recipe), name="custom", epochs=epochs))
    root = None if data is None else str(data)
    options: dict[str, Any] = {"root": root, "download": download, "device": device, "jobs": jobs}
    options |= {"retry_failed": retry_failed, "progress": True}
    with nullcontext() if engine is None else find_executor(engine, device) as executor:
        outcome = sweep(chosen, out, **options, executor=executor)
    say(str(outcome))
    return 1 if outcome.failed or outcome.postponed else 0


def table(
    folders: Annotated[tuple[Path, ...], Named("FOLDER", positional=True)],
    *,
    style: Literal["text", "markdown", "latex", "csv"] = "text",
    split: Literal["test", "train"] = "test",
    datasets: Names = None,
    methods: Names = None,
    names: Names = None,
    against: File = None,
    without: Names = None,
    beside: File = None,
    diagram: File = None,
    into: File = None,
    block: Text = None,
) -> None:
    """Print tables of results: means and standard deviations, wins, ties and losses, average ranks.

    Folders hold runs of `candidly bench`, or Parquet files of other predictions with the columns dataset, method, seed,
    split, row, true, predicted and probability. With --into, the table replaces the text between the lines
    "<!-- begin candidly table -->" and "<!-- end candidly table -->" of a Markdown page; with --block NAME, between
    "<!-- begin candidly table NAME -->" and "<!-- end candidly table NAME -->".

    Args:
        folders: Folders with results.
        style: Format of the table.
        split: Which rows to score.
        datasets: Datasets to show, separated by commas, in this order (default: all).
        methods: Methods to show, separated by commas, in this order (default: all).
        names: Other names to show, separated by commas, such as proden=PRODEN,lost=Lost.
        against: CSV file with published accuracies (columns method, dataset, seed, test_accuracy) to compare with.
        without: Methods without which mean differences to --against are shown too, separated by commas.
        beside: Folder with other runs, such as those of another protocol, to show beside these without a test.
        diagram: Also draw the critical-difference diagram to this file (.svg, .pdf or .png).
        into: Markdown page to update, instead of printing.
        block: Name of the table in the page, if the page has several.
    """
    from candidly.bench import diagram as diagrams
    from candidly.bench import read, read_csv
    from candidly.bench import table as tables

    if into is not None and style not in ("text", "markdown"):
        raise ValueError(f"--into writes Markdown, but --style is {style}; remove one of them")
    if block is not None and into is None:
        raise ValueError("--block names a table in a page; name the page with --into, or remove --block")
    if without is not None and against is None:
        raise ValueError("--without changes the comparison with --against; add it, or remove --without")
    chosen = {"datasets": split_names(datasets, "--datasets"), "methods": split_names(methods, "--methods")}
    labels = dict(_label(text) for text in split_names(names, "--names"))
    found = read(folders, split=split).select(**{what: wanted or None for what, wanted in chosen.items()})
    published = None if against is None else read_csv(against)
    other = None if beside is None else (beside.resolve().name, read(beside, split=split))
    text = tables.render(
        found,
        style=style if into is None else "markdown",
        against=published,
        names=labels,
        without=split_names(without, "--without"),
        beside=other,
    )
    if diagram is not None:
        diagrams.draw(found, diagram, labels)
    if into is None:
        say(text.removesuffix("\n"))
    else:
        tables.insert(into, text, block)


def _label(text: str) -> tuple[str, str]:
    """Read a name and what to show instead, such as ``proden=PRODEN``."""
    name, equals, shown = text.partition("=")
    if not equals:
        raise ValueError(f"--names has {text!r}; write it as NAME=SHOWN, such as proden=PRODEN")
    return name.strip(), shown.strip()
