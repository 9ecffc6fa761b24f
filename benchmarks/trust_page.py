"""docs/evidence/trust.md: the tables between its markers, and the plot, from the results of `benchmarks.trust`."""

import importlib.util
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from benchmarks import synthetic
from benchmarks.cells import fill

PAGE, PLOT = Path("docs/evidence/trust.md"), Path("docs/evidence/trust.svg")
ALPHAS = (0.02, 0.05, 0.1, 0.2)
DATASETS = ("lost", "bird-song", "msrc-v2")
NOTABLE = 0.01  # by how much a level may be missed
Results = dict[str, Any]


def write(results: Results) -> None:
    """Write each table between its markers, and the plot."""
    for block, text in tables(results).items():
        fill(PAGE, text, block)
    if "real" in results and importlib.util.find_spec("matplotlib") is not None:
        draw(results["real"]["rules"])


def tables(results: Results) -> dict[str, str]:
    """Return the tables of all parts in the results by the name of their block."""
    parts = {
        "real": (rules, audits),
        "synthetic": (mechanisms, choice),
        "ranges": (ranges, errors),
        "review": (review,),
        "training": (cleaned, permanent),
    }
    made = [(table, results[part]) for part, some in parts.items() if part in results for table in some]
    return {table.__name__: "\n".join(table(found)) for table, found in made}


def row(cells: Iterable[Any]) -> str:
    return f"| {' | '.join(map(str, cells))} |"


def head(cells: Sequence[str]) -> list[str]:
    return [row(cells), row(["---"] * len(cells))]


def percent(share: float) -> str:
    return f"{100 * share:.1f}"


def rules(found: Results) -> Iterator[str]:
    """Yield the fractions that every rule keeps and removes."""
    at = [(name, alpha) for name in DATASETS for alpha in (0.05, 0.1)]
    yield from head(["rule", *(f"{name}, α = {alpha}" for name, alpha in at)])
    names = list(dict.fromkeys(key.split(" | ")[1] for key in found["rules"]))
    for rule in names:
        cells = []
        for name, alpha in at:
            scores = found["rules"].get(f"{name} | {rule} | {alpha}") or found["rules"][f"{name} | {rule} | None"]
            kept, removed = np.array(scores).T
            cells.append(f"{percent(kept.mean())} ± {percent(kept.std(ddof=1))} / {percent(removed.mean())}")
        yield row([f"**{rule}**" if rule == "candidly" else rule, *cells])


def audits(found: Results) -> Iterator[str]:
    """Yield the estimates of the audit on real datasets, with folds by row and by group, and the truth."""
    yield from head(["dataset", "folds by", "α", "lost", "guessed range", "holds it", "declined"])
    for name in DATASETS:
        for kind, folds in (("split", "row"), ("split grouped", "group")):
            for alpha in ALPHAS:
                rows = found["audit"][f"{name} | {kind} | {alpha}"]
                given = [bounds for _, _, bounds in rows if bounds is not None]
                held = sum(bounds is not None and bounds[1] <= lost <= bounds[2] for lost, _, bounds in rows)
                _, low, high = np.mean(given, axis=0) if given else [np.nan] * 3
                lost = np.mean([one[0] for one in rows])
                shown = f"{percent(low)} to {percent(high)}"
                cells = [name, folds, alpha, percent(lost), shown, f"{held} of {len(given)}"]
                yield row([*cells, len(rows) - len(given)])


def ranges(found: Results) -> Iterator[str]:
    """Yield what the audit's ranges hold, with factors that were chosen without the dataset or mechanism."""
    yield from head(["without", "factors", "cells", "declined", "holds", "median width", "before: holds", "width"])
    for name, one in found["without"].items():
        yield row([name, *_held([one])])
    made = [one for name, one in found["without"].items() if name not in DATASETS]
    yield row(["**all mechanisms**", *_held(made)])


def _held(some: Sequence[Results]) -> list[str]:
    factors = {tuple(one["factors"]) for one in some}
    cells, declined = (sum(one[what] for one in some) for what in ("cells", "declined"))
    measured = []
    for when in ("now", "before"):
        held, width = sum(one[when]["held"] for one in some), np.median([one[when]["width"] for one in some])
        measured += [f"{held / max(cells - declined, 1):.0%}", percent(width)]
    shown = " or ".join(f"{lower:g}, {upper:g}" for lower, upper in sorted(factors))
    return [shown, str(cells), str(declined), *measured]


def errors(found: Results) -> Iterator[str]:
    """Yield the fraction of rows whose most probable candidate is wrong, and what the audit guesses."""
    yield from head(["dataset", "wrong", "guessed range", "holds it"])
    for name in DATASETS:
        wrong, _, low, high = np.array(found["errors"][name]).T
        held = f"{((low <= wrong) & (wrong <= high)).sum()} of {len(wrong)}"
        yield row([name, percent(wrong.mean()), f"{percent(low.mean())} to {percent(high.mean())}", held])


def review(found: Results) -> Iterator[str]:
    """Yield how many learned labels are wrong among the first rows, and how many times as many as among random rows."""
    yield from head(["dataset", "wrong labels", "order", "wrong among the first 100", "among the first 1000"])
    for name in DATASETS:
        fits = found[f"{name} | all"]
        rate = np.mean([one["wrong"] / one["rows"] for one in fits])
        for order in [key for key in fits[0] if key not in ("rows", "wrong")]:
            cells = []
            for k, m in enumerate((100, 1000)):
                counts = [one[order][k] for one in fits]
                times = np.mean([one[order][k] / (m * one["wrong"] / one["rows"]) for one in fits])
                cells.append(f"{np.mean(counts):.0f} ({times:.1f} ×)")
            yield row([name, f"{percent(rate)} %", f"**{order}**" if "default" in order else order, *cells])


def mechanisms(found: Results) -> Iterator[str]:
    """Yield loss, removal and audit by mechanism, on problems that were not used to compare constants."""
    columns = ["mechanism", "excess", *(f"α = {alpha}" for alpha in ALPHAS), "audit holds", "width", "declined"]
    yield from head(columns)
    problems = [one for one in found["problems"] if "neighbours" not in one]
    for kind, names in synthetic.MECHANISMS.items():
        every = [one for one in problems if one["problem"][1] in names]
        yield row([f"**{kind}**", *_audited(every)])
        for name in names:
            own = [one for one in every if one["problem"][1] == name]
            yield row([name, *_audited(own)])


def _audited(problems: list[Results]) -> list[str]:
    lost, removed = _levels(problems)
    cells = [(bounds, level[0]) for one in problems for level in one["levels"] for bounds in [level[2]]]
    given = [(bounds, truth) for bounds, truth in cells if bounds is not None]
    held = np.mean([low <= truth <= high for (_, low, high), truth in given]) if given else np.nan
    width = np.median([high - low for (_, low, high), _ in given]) if given else np.nan
    excess = np.mean([one["excess"] for one in problems])
    shown = [f"{percent(a)} / {percent(b)}" for a, b in zip(lost.mean(0), removed.mean(0), strict=True)]
    return [f"{excess:.2f}", *shown, f"{held:.0%}", percent(width), f"{len(cells) - len(given)} of {len(cells)}"]


def _levels(problems: list[Results]) -> tuple[NDArray[Any], NDArray[Any]]:
    """Return the fractions of lost labels and of removed wrong candidates, by problem and level."""
    both = np.array([[level[:2] for level in one["levels"]] for one in problems])
    return both[..., 0], both[..., 1]


def choice(found: Results) -> Iterator[str]:
    """Yield the results with other constants."""
    yield from head(
        ["caution", "alone", "worst mechanisms, mean loss above α", "cells more than a point above", "removed at 0.05"]
    )
    problems = [one for one in found["problems"] if "neighbours" in one]
    for key in problems[0]["neighbours"]:
        both = np.array([one["neighbours"][key] for one in problems])  # problem, level, (kept, removed)
        above = 1 - both[..., 0] - np.array(ALPHAS)
        names = np.array([one["problem"][1] for one in problems])
        means = {(name, alpha): above[names == name, k].mean() for name in set(names) for k, alpha in enumerate(ALPHAS)}
        worst = sorted(means.items(), key=lambda item: -item[1])[:3]
        shown = ", ".join(f"{name} at {alpha}: {100 * value:+.1f}" for (name, alpha), value in worst)
        caution, alone = key.split()
        used = (float(caution), float(alone)) == (found["caution"], found["alone"])
        cells = [caution, alone, shown, f"{(above > NOTABLE).mean():.0%}", percent(both[:, 1, 1].mean())]
        yield row([f"**{cell}**" if used else cell for cell in cells])


def cleaned(found: Results) -> Iterator[str]:
    """Yield the accuracy with original and with cleaned sets, and the paired difference with its 95 % interval."""
    yield from head(["dataset", "cleaning in training", "models", "original sets", "cleaned sets", "difference"])
    for key, scores in found["cleaned"].items():
        name, cleaner, which = key.split(" | ")
        if which == "original":
            before, after = np.array(scores), np.array(found["cleaned"][f"{name} | {cleaner} | cleaned"])
            gap = after - before
            half = stats.t.ppf(0.975, len(gap) - 1) * gap.std(ddof=1) / len(gap) ** 0.5
            shown = f"{100 * gap.mean():+.2f} ± {100 * half:.2f}"
            yield row([name, cleaner, len(gap), percent(before.mean()), percent(after.mean()), shown])


def permanent(found: Results) -> Iterator[str]:
    """Yield the accuracy of permanent pruning, and the fraction of labels that it lost."""
    yield from head(["dataset", "rule", "accuracy", "lost, estimated", "lost"])
    for key, scores in found["permanent"].items():
        name, rule = key.split(" | ")
        estimated, actual = scores["estimated, actual"]
        yield row([name, rule, percent(np.mean(scores["accuracy"])), percent(estimated), percent(actual)])


def draw(found: Results) -> None:
    """Draw what rules keep against what they remove."""
    import matplotlib as mpl
    from matplotlib.figure import Figure

    shown = {"candidly": "C3", "risk budget alone": "C1", "best (the paper's)": "C0", "singletons": "C2", "worst": "C4"}
    points = {"CLSP": "s", "POP's purge": "D", "cleanlab": "^"}
    figure = Figure(figsize=(12, 4), layout="constrained")
    axes = figure.subplots(1, len(DATASETS), sharey=True)
    for ax, name in zip(axes, DATASETS, strict=True):
        for rule, colour in shown.items():
            curve = np.array([np.mean(found[f"{name} | {rule} | {alpha}"], 0) for alpha in ALPHAS])
            ax.plot(100 * curve[:, 1], 100 * curve[:, 0], "o-", color=colour, label=rule, markersize=4)
        for rule, marker in points.items():
            kept, removed = np.mean(found[f"{name} | {rule} | None"], 0)
            ax.plot(100 * removed, 100 * kept, marker, color="0.4", label=rule, markersize=6)
        for alpha in ALPHAS:
            ax.axhline(100 * (1 - alpha), color="0.8", linewidth=0.7, zorder=0)
        ax.set(title=name, xlabel="wrong candidates removed (%)", ylim=(80, 100.5), xlim=(0, 100))
    axes[0].set_ylabel("true labels kept (%)")
    axes[-1].legend(fontsize=8, loc="lower left")
    with mpl.rc_context({"svg.hashsalt": "candidly"}):
        figure.savefig(PLOT, metadata={"Date": None})
