"""Tables of accuracies: plain text, Markdown, LaTeX and CSV.

A table is a grid of plain strings. The style that writes it escapes all of them for its format.
"""

import csv
import io
import math
import os
import re
import textwrap
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from candidly import store
from candidly.bench.names import join, split
from candidly.bench.scores import Cell, Scores, mean_of
from candidly.bench.statistics import LEVEL, Comparison, Ranks, Record, compare, ranks, wins_ties_losses
from candidly.checks import arguments
from candidly.messages import did_you_mean, listed, neutralise, visible, width

__all__ = ["BEGIN", "END", "insert", "render"]

BEGIN, END = "<!-- begin candidly table -->", "<!-- end candidly table -->"
_BLOCK = re.compile(r"[a-z0-9-]+")
WIDTH = 120
_MOST_BYTES = 2**26  # of a Markdown page
MISSING = "–"


@dataclass(frozen=True)
class Grid:
    """A header, rows of strings, and the (row, column) of the best cell of each column."""

    header: list[str]
    rows: list[list[str]] = field(default_factory=list)
    best: set[tuple[int, int]] = field(default_factory=set)


@dataclass(frozen=True)
class Style:
    """How a format writes a heading, a grid and notes; each function escapes its arguments."""

    heading: Callable[[str], str]
    grid: Callable[[Grid], str]
    notes: Callable[[list[str]], str]
    legend: str


def render(
    scores: Scores,
    style: str = "text",
    against: Scores | None = None,
    title: str | None = None,
    names: Mapping[str, str] | None = None,
    *,
    without: Sequence[str] = (),
    beside: tuple[str, Scores] | None = None,
) -> str:
    r"""Return accuracies as a table, with the results of statistical tests below it.

    If there are methods with a cleaner, a second table counts wins, ties and losses against the same method alone.

    Parameters
    ----------
    scores : Scores
    style : {"text", "markdown", "latex", "csv"}, default "text"
        LaTeX needs the package booktabs. CSV has one line per cell, in percent, and no notes.
    against : Scores, optional
        Published accuracies to compare with: over all datasets, then cell by cell.
    title : str, optional
        A line above the table; ignored for CSV.
    names : mapping of str to str, optional
        What to show instead of the names of some methods and datasets. `Scores.select` chooses and orders them.
    without : sequence of str
        Methods, each also with its cleaners, without which mean differences to `against` are given too.
    beside : pair of str and Scores, optional
        The name and the accuracies of other runs, such as those of another protocol. Their seeds need not be the same
        splits, so differences are not tested.

    Returns
    -------
    str

    Raises
    ------
    ValueError
        If the style is unknown, or if `names` or `without` has an unknown name.

    Examples
    --------
    >>> scores = Scores({("lost", "proden"): {0: 0.70, 1: 0.75}, ("lost", "conf+proden"): {0: 0.75, 1: 0.82}})
    >>> print("\n".join(render(scores).splitlines()[:4]))
    method               lost   W/T/L  rank
    -----------  -------------  -----  ----
    proden       72.50 ± 3.54       –  2.00
    conf+proden  78.50 ± 4.95*  0/1/0  1.00
    """
    arguments.instance("scores", scores, Scores, "a candidly.bench.Scores")
    arguments.choice("style", style, (*STYLES, "csv"))
    arguments.instance("against", against, (Scores, type(None)), "a candidly.bench.Scores, or None")
    arguments.instance("title", title, (str, type(None)), "a text, or None")
    without = _check_without(without, scores)
    _check_beside(beside)
    if style == "csv":
        return _render_csv(scores, against, scores.labels(names), beside)
    write, found, labels = STYLES[style], ranks(scores), scores.labels(names)
    parts = [] if title is None else [write.heading(visible(title).strip())]
    parts += [
        write.grid(_main(scores, found, labels)),
        write.notes([*_describe(scores, write, labels), *_describe_ranks(found, scores, labels)]),
    ]
    parts += _cleaned(scores, write, labels)
    if against is not None:
        parts += _published(scores, against, write, labels, without)
    if beside is not None:
        parts += _beside(scores, *beside, write, labels)
    return "\n\n".join(parts) + "\n"


def _check_without(without: Sequence[str], scores: Scores) -> tuple[str, ...]:
    given = tuple(arguments.items("without", without, "a list of methods"))
    for name in given:
        if name not in scores.base_methods:
            hint = did_you_mean(name, scores.base_methods)
            known = listed(scores.base_methods) or "none"
            raise ValueError(f"without has {arguments.shown(name)}{hint}; the methods without a cleaner are {known}")
    return given


def _check_beside(beside: tuple[str, Scores] | None) -> None:
    wanted = "a pair of a name and a candidly.bench.Scores, or None"
    if beside is not None:
        pair = tuple(arguments.items("beside", beside, wanted))
        if len(pair) != 2 or not isinstance(pair[0], str) or not isinstance(pair[1], Scores):
            raise ValueError(f"beside is {arguments.shown(beside)}; it must be {wanted}")


def insert(page: str | os.PathLike[str], text: str, block: str | None = None) -> None:
    r"""Replace the text between the two marker lines of a Markdown page; all other bytes stay the same.

    Parameters
    ----------
    page : path
        A page with the line ``<!-- begin candidly table -->`` and, below it, ``<!-- end candidly table -->``.
    text : str
        The text to put between them.
    block : str, optional
        A name for the markers, so that a page can have several tables: with "grouped" they are
        ``<!-- begin candidly table grouped -->`` and ``<!-- end candidly table grouped -->``.

    Raises
    ------
    ValueError
        If a marker is missing, occurs twice or is in the wrong order, if the text contains one, or if the name of the
        block has other characters than a-z, 0-9 and "-".

    Examples
    --------
    >>> import tempfile
    >>> from pathlib import Path
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     page = Path(folder, "results.md")
    ...     _ = page.write_text(f"# Results\n{BEGIN}\nold\n{END}\nend\n")
    ...     insert(page, "new")
    ...     print(page.read_text().replace(BEGIN, "(begin)").replace(END, "(end)"))
    # Results
    (begin)
    <BLANKLINE>
    new
    <BLANKLINE>
    (end)
    end
    <BLANKLINE>
    """
    arguments.instance("text", text, str, "a text")
    markers = _markers(block)
    page = arguments.path("page", page).resolve()  # replace the file that a symbolic link points to, not the link
    old = store.read_limited(page, _MOST_BYTES)
    places = []
    for marker in markers:
        found = list(re.finditer(rb"^%s[ \t]*\r?(?:\n|\Z)" % re.escape(marker.encode()), old, re.MULTILINE))
        if len(found) != 1 or marker in text:
            where = f"{page} has {len(found)} lines" if len(found) != 1 else "the text has a line"
            raise ValueError(f"{where} {marker!r}; the page needs exactly one such line, the text none")
        places.append(found[0])
    begin, end = places
    if begin.end() > end.start():
        raise ValueError(f"{page} has {markers[1]!r} above {markers[0]!r}; swap the two lines")
    newline = b"\r\n" if begin.group().endswith(b"\r\n") else b"\n"
    lines = [b"", *(line.encode() for line in text.strip("\n").split("\n")), b"", b""]
    store.replace(page, old[: begin.end()] + newline.join(lines) + old[end.start() :])


def _markers(block: str | None) -> tuple[str, str]:
    """Return the lines that begin and end a block."""
    if block is None:
        return BEGIN, END
    if not isinstance(block, str) or not _BLOCK.fullmatch(block):
        raise ValueError(f"block is {arguments.shown(block)}; use a-z, 0-9 and '-', such as 'grouped'")
    return BEGIN.replace(" -->", f" {block} -->"), END.replace(" -->", f" {block} -->")


def _main(scores: Scores, found: Ranks, labels: Mapping[str, str]) -> Grid:
    grid = Grid(["method", *(labels[dataset] for dataset in scores.datasets), "W/T/L", "rank"])
    best = _best(scores)
    for i, method in enumerate(scores.methods):
        grid.best.update((i, j + 1) for j, dataset in enumerate(scores.datasets) if (dataset, method) in best)
        cells = [_cell(scores, dataset, method) for dataset in scores.datasets]
        record = wins_ties_losses(scores, method)
        rank = f"{found.average[method]:.2f}" if found.average else MISSING
        grid.rows.append([labels[method], *cells, _counts(record), rank])
    return grid


def _best(scores: Scores) -> set[tuple[str, str]]:
    """Return the best cells of each dataset: those whose printed mean is the highest."""
    shown = {cell: round(100 * scores.mean(*cell), 2) for cell in scores.cells}
    datasets = {dataset for dataset, _ in scores.cells}
    top = {dataset: max(value for cell, value in shown.items() if cell[0] == dataset) for dataset in datasets}
    return {cell for cell, value in shown.items() if value == top[cell[0]]}


def _cell(scores: Scores, dataset: str, method: str) -> str:
    if (dataset, method) not in scores.cells:
        return MISSING
    mean, spread = scores.mean(dataset, method), scores.spread(dataset, method)
    return f"{100 * mean:.2f}" + ("" if math.isnan(spread) else f" ± {100 * spread:.2f}")


def _describe(scores: Scores, style: Style, labels: Mapping[str, str]) -> list[str]:
    """Explain the numbers of the main table."""
    sizes = sorted({len(seeds) for seeds in scores.cells.values()}) or [0]
    seeds = f"{sizes[0]} seed{'s' * (sizes[0] != 1)}" if sizes[0] == sizes[-1] else f"{sizes[0]} to {sizes[-1]} seeds"
    several = sizes[-1] > 1
    missing = len(scores.cells) < len(scores.datasets) * len(scores.methods)
    spread = " ± standard deviation" * several
    notes = [
        f"{visible(scores.split).capitalize()} accuracy in percent: mean{spread} over {seeds} "
        f"per cell; a seed's accuracy is the mean over its initialisations. {style.legend}"
        + f" A missing cell is shown as {MISSING}."
        * missing
    ]
    if scores.base_methods:
        rivals = ", ".join(labels[method] for method in scores.base_methods)
        notes.append(
            "W/T/L: wins, ties and losses in two-sided paired t-tests over seeds at 5 %, on each dataset against each "
            f"other method of {rivals}.{' Cells with one seed are not tested.' * (sizes[0] == 1)}"
        )
    return notes


def _describe_ranks(found: Ranks, scores: Scores, labels: Mapping[str, str]) -> list[str]:
    if not found.average:
        return [f"No ranks: {found.reason}."]
    number = len(found.datasets)
    used = ", ".join(labels[dataset] for dataset in found.datasets)
    which = "" if found.datasets == scores.datasets else f" ({used}), those without a missing cell"
    plural = "s" * (number != 1)
    notes = [f"Rank: by mean accuracy, averaged over {number} dataset{plural}{which}; 1 is the best, ties share ranks."]
    if found.statistic is None or found.p is None:  # then Nemenyi's test, which follows it, says nothing either
        return [*notes, f"{found.reason}."]
    verdict = "the ranks differ" if found.p < LEVEL else "no significant difference between the ranks"
    notes.append(f"Friedman's test: chi-squared {found.statistic:.2f}, p {_p(found.p, '= ')}: {verdict}.")
    if found.distance is not None:
        groups = "; ".join(", ".join(labels[method] for method in group) for group in found.groups)
        closer = f"Closer together than that: {groups}." if groups else "No two methods are closer together than that."
        notes.append(f"Nemenyi's critical distance of average ranks at 5 %: {found.distance:.2f}. {closer}")
    return notes


def _cleaned(scores: Scores, style: Style, labels: Mapping[str, str]) -> list[str]:
    """Return a table of wins, ties and losses of each cleaner against the same methods without it."""
    pairs: dict[str, dict[str, str]] = {}  # for each cleaner, the method with it for each method alone
    for method in scores.methods:
        before, base, suffix = split(method)
        cleaner = f"{before} {suffix}".strip()
        if before and base in scores.methods and method == join(cleaner, base):
            pairs.setdefault(cleaner, {})[base] = method
    if not pairs:
        return []
    bases = [method for method in scores.methods if any(method in cleaned for cleaned in pairs.values())]
    grid = Grid(["cleaner", *(labels[base] for base in bases), "all", "mean difference"])
    for cleaner, cleaned in pairs.items():
        records = {base: wins_ties_losses(scores, method, [base]) for base, method in cleaned.items()}
        gains = [
            scores.mean(dataset, method) - scores.mean(dataset, base)
            for base, method in cleaned.items()
            for dataset in scores.datasets
            if (dataset, base) in scores.cells and (dataset, method) in scores.cells
        ]
        total = Record(*map(sum, zip(*records.values(), strict=True)))
        counts = [_counts(records.get(base, Record(0, 0, 0))) for base in bases]
        grid.rows.append([cleaner, *counts, _counts(total), _signed(mean_of(gains)) if gains else MISSING])
    note = (
        "Wins, ties and losses of the method with the cleaner against the method alone, in two-sided paired t-tests "
        "over seeds at 5 %; and the mean difference over all datasets with both cells, in points."
    )
    return [style.heading("Cleaners against no cleaner"), style.grid(grid), style.notes([note])]


def _counts(record: Record) -> str:
    return "/".join(map(str, record)) if sum(record) else MISSING


def _beside(scores: Scores, name: str, other: Scores, style: Style, labels: Mapping[str, str]) -> list[str]:
    """Return, for each dataset, a table of these and other accuracies, and its explanation."""
    name = visible(name).strip()
    parts = []
    for dataset in scores.datasets:
        cells = [(dataset, method) for method in scores.methods if (dataset, method) in scores.cells]
        gaps = {cell: scores.mean(*cell) - other.mean(*cell) for cell in cells if cell in other.cells}
        if not gaps:
            continue
        grid = Grid(["method", "here", name, "difference"])
        for cell in cells:
            gap = _signed(gaps[cell]) if cell in gaps else MISSING
            grid.rows.append([labels[cell[1]], _cell(scores, *cell), _cell(other, *cell), gap])
        mean = f"Mean difference over {_number(len(gaps), 'cell')}: {_signed(mean_of(gaps.values()))}."
        parts += [style.heading(f"{labels[dataset]}, beside {name}"), style.grid(grid), style.notes([mean])]
    note = f"Difference: the mean here minus the mean of {name}, in points; not tested, since the splits may differ."
    return [*parts, style.notes([note if parts else f"No cell is both here and in {name}."])]


def _number(count: int, what: str) -> str:
    return f"{count} {what}{'s' * (count != 1)}"


def _published(
    scores: Scores, against: Scores, style: Style, labels: Mapping[str, str], without: tuple[str, ...]
) -> list[str]:
    """Return a summary of the comparison with published accuracies, a table for each dataset, and an explanation."""
    found = compare(scores, against)
    parts = _summary(scores, found, style, labels, without)
    for dataset in scores.datasets:
        grid = Grid(["method", "ours", "published", "difference", "p", "p (Holm)", "significant"])
        for method in scores.methods:
            if (dataset, method) in scores.cells:
                ours = f"{100 * scores.mean(dataset, method):.2f}"
                grid.rows.append([labels[method], *_compared(found.get((dataset, method)), ours)])
        total = _total([row for cell, row in found.items() if cell[0] == dataset])
        parts += [
            style.heading(f"{labels[dataset]}, beside published accuracies"),
            style.grid(grid),
            style.notes([total]),
        ]
    tests = sum(not math.isnan(row.p) for row in found.values())
    note = (
        "Means in percent over the seeds that both have, and their difference; p from two-sided paired t-tests over "
        f"these seeds, adjusted by Holm's procedure for all {tests} tests; above and below mark those "
        f"that differ at 5 % after it. {MISSING} stands where nothing is published or too few seeds are common."
    )
    return [*parts, style.notes([note])]


def _summary(
    scores: Scores, found: Mapping[Cell, Comparison], style: Style, labels: Mapping[str, str], without: tuple[str, ...]
) -> list[str]:
    """Return a table of mean differences to published accuracies, with wins, ties and losses, by dataset."""
    if not found:
        return []
    rest = f"without {', '.join(labels[method] for method in without)}"
    extra = [f"cells {rest}", f"mean difference {rest}"] if without else []
    grid = Grid(["dataset", "cells", "mean difference", "W/T/L", "W/T/L (Holm)", *extra])
    used = [dataset for dataset in scores.datasets if any(cell[0] == dataset for cell in found)]
    for dataset in [*used, None] if len(used) > 1 else used:
        cells = {cell: row for cell, row in found.items() if dataset in (cell[0], None)}
        kept = [row for (_, method), row in cells.items() if split(method)[1] not in without]
        rows = list(cells.values())
        texts = [*_mean_difference(rows), _counts(_record(rows)), _counts(_record(rows, holm=True))]
        grid.rows.append(
            ["all" if dataset is None else labels[dataset], *texts, *(_mean_difference(kept) if without else [])]
        )
    below = [f"{labels[cell[1]]} on {labels[cell[0]]}" for cell, row in found.items() if _verdict(row, row.p_holm) < 0]
    notes = [
        "W/T/L: cells that are above, not different from and below the published ones, in two-sided paired t-tests "
        "over seeds at 5 %, without and with Holm's correction. Mean differences are in points.",
        f"Significantly below the published accuracy after Holm's correction: {', '.join(below) or 'no cell'}.",
    ]
    return [style.heading("Beside published accuracies, all datasets"), style.grid(grid), style.notes(notes)]


def _mean_difference(rows: Sequence[Comparison]) -> list[str]:
    return [str(len(rows)), _signed(mean_of(row.difference for row in rows)) if rows else MISSING]


def _verdict(row: Comparison, p: float) -> int:
    """Return 1, 0 or -1: above the published accuracy, not different from it, below it."""
    if not p < LEVEL:  # nor where there is no test
        return 0
    return 1 if row.difference > 0 else -1


def _record(rows: Sequence[Comparison], holm: bool = False) -> Record:
    verdicts = [_verdict(row, row.p_holm if holm else row.p) for row in rows if row.n > 1]
    return Record(*(verdicts.count(verdict) for verdict in (1, 0, -1)))


def _compared(row: Comparison | None, ours: str) -> list[str]:
    if row is None:
        return [ours, MISSING, MISSING, MISSING, MISSING, ""]
    mark = {1: "above", 0: "", -1: "below"}[_verdict(row, row.p_holm)]
    means = [f"{100 * row.ours:.2f}", f"{100 * row.theirs:.2f}", _signed(row.difference)]
    return [*means, _p(row.p), _p(row.p_holm), mark]


def _total(rows: Sequence[Comparison]) -> str:
    if not rows:
        return "Nothing is published for these cells."
    mean = mean_of(row.difference for row in rows)
    shown = [_signed(row.difference) for row in rows]
    above, below = sum(text.startswith("+") for text in shown), sum(text.startswith("−") for text in shown)
    significant = sum(row.significant for row in rows)
    cells = _number(len(rows), "compared cell")
    return f"Mean difference over {cells}: {_signed(mean)}; {above} above, {below} below, {significant} significant."


def _signed(share: float) -> str:
    text = f"{100 * share:+.2f}"
    return "0.00" if text in ("+0.00", "-0.00") else text.replace("-", "−")


def _p(p: float, equals: str = "") -> str:
    if math.isnan(p):
        return MISSING
    return "< 0.001" if p < 0.001 else f"{equals}{p:.3f}"


def _render_csv(
    scores: Scores, against: Scores | None, labels: Mapping[str, str], beside: tuple[str, Scores] | None
) -> str:
    published = None if against is None else compare(scores, against)
    best, average = _best(scores), ranks(scores).average
    records = {method: wins_ties_losses(scores, method) for method in scores.methods}
    file = io.StringIO()
    writer = csv.writer(file, lineterminator="\n")
    header = ["dataset", "method", "seeds", "mean", "std", "best", "wins", "ties", "losses", "average_rank"]
    header += ["published", "difference", "p", "p_holm"] if published is not None else []
    writer.writerow(header + (["beside_mean", "beside_std"] if beside is not None else []))
    for cell, seeds in scores.cells.items():
        numbers = [_digits(100 * scores.mean(*cell)), _digits(100 * scores.spread(*cell)), int(cell in best)]
        shown = [neutralise(labels[name]) for name in cell]
        row = [*shown, len(seeds), *numbers, *records[cell[1]], _digits(average.get(cell[1], math.nan))]
        if published is not None:
            other = published.get(cell)
            facts = (100 * other.theirs, 100 * other.difference, other.p, other.p_holm) if other else (math.nan,) * 4
            row += map(_digits, facts)
        if beside is not None:
            known = cell in beside[1].cells
            row += [_digits(100 * value(*cell)) if known else "" for value in (beside[1].mean, beside[1].spread)]
        writer.writerow(row)
    return file.getvalue()


def _digits(value: float) -> str:
    return "" if math.isnan(value) else f"{value:.6g}"


def _escape_markdown(text: str) -> str:
    """Escape text for Markdown, by entities where a backslash does not work in tables, HTML or some dialects."""
    marks = {mark: f"\\{mark}" for mark in "\\*_`[]#"} | {mark: f"&#{ord(mark)};" for mark in "|~$"}
    marks |= {"&": "&amp;", "<": "&lt;", ">": "&gt;"}
    escaped = "".join(marks.get(letter, letter) for letter in text)
    return re.sub(r"://|www\.", lambda link: f"&#{ord(link[0][0])};{link[0][1:]}", escaped, flags=re.IGNORECASE)


def _escape_latex(text: str) -> str:
    marks = {mark: f"\\{mark}" for mark in "&%$#_{}"} | {"±": r"$\pm$", "−": "$-$", "–": "--"}
    # After the \\ of the previous row, these would be read as its arguments.
    marks |= {mark: f"{{{mark}}}" for mark in "[]*"}
    names = {"\\": "backslash", "~": "asciitilde", "^": "asciicircum", "<": "less", ">": "greater", "|": "bar"}
    marks |= {mark: f"\\text{name}{{}}" for mark, name in names.items()}
    return "".join(marks.get(letter, letter) for letter in text)


def _lines(grid: Grid, escape: Callable[[str], str], best: str, other: str = "{}") -> list[list[str]]:
    """Return header and rows, escaped; `best` and `other` are formats for the columns that have a best cell."""
    starred = {column for _, column in grid.best}
    lines = [[(other if j in starred else "{}").format(escape(text)) for j, text in enumerate(grid.header)]]
    for i, row in enumerate(grid.rows):
        marks = [best if (i, j) in grid.best else other if j in starred else "{}" for j in range(len(row))]
        lines.append([mark.format(escape(text)) for mark, text in zip(marks, row, strict=True)])
    return lines


def _write_text(grid: Grid) -> str:
    """Write aligned columns; lines that would be too long are split into blocks that repeat the first column."""
    lines = _lines(grid, str, "{}*", "{} ")
    widths = [max(map(width, column)) for column in zip(*lines, strict=True)]
    lines.insert(1, ["-" * columns for columns in widths])
    blocks: list[list[int]] = []
    for j in range(1, len(widths)):
        if not blocks or sum(widths[k] + 2 for k in blocks[-1]) + widths[j] > WIDTH:
            blocks.append([0])
        blocks[-1].append(j)
    return "\n\n".join("\n".join(_align(line, widths, block) for line in lines) for block in blocks)


def _align(line: list[str], widths: list[int], columns: list[int]) -> str:
    padding = [" " * (widths[j] - width(line[j])) for j in columns]
    texts = [space + line[j] if j else line[j] + space for j, space in zip(columns, padding, strict=True)]
    return "  ".join(texts).rstrip()


def _write_markdown(grid: Grid) -> str:
    header, *rows = _lines(grid, _escape_markdown, "**{}**")
    rule = [":---", *["---:"] * (len(header) - 1)]
    return "\n".join(f"| {' | '.join(line)} |" for line in (header, rule, *rows))


def _write_latex(grid: Grid) -> str:
    header, *rows = [" & ".join(line) + r" \\" for line in _lines(grid, _escape_latex, r"\textbf{{{}}}")]
    begin = rf"\noindent\begin{{tabular}}{{l{'r' * (len(grid.header) - 1)}}}"
    return "\n".join([begin, r"\toprule", header, r"\midrule", *rows, r"\bottomrule", r"\end{tabular}"])


def _note_text(notes: list[str]) -> str:
    wrap = textwrap.TextWrapper(WIDTH, initial_indent="- ", subsequent_indent="  ", break_long_words=False)
    return "\n".join(map(wrap.fill, notes))


def _note_latex(notes: list[str]) -> str:
    return "\n".join([r"\begin{itemize}", *(rf"\item {_escape_latex(note)}" for note in notes), r"\end{itemize}"])


STYLES = {
    "text": Style(
        str,
        _write_text,
        _note_text,
        "The best mean of a dataset has a *.",
    ),
    "markdown": Style(
        lambda text: f"**{_escape_markdown(text)}**",
        _write_markdown,
        lambda notes: "\n".join(f"- {_escape_markdown(note)}" for note in notes),
        "The best mean of a dataset is bold.",
    ),
    "latex": Style(
        lambda text: rf"\noindent\textbf{{{_escape_latex(text)}}}",
        _write_latex,
        _note_latex,
        "The best mean of a dataset is bold.",
    ),
}
