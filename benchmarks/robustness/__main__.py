"""``python -m benchmarks.robustness``: run the cases and print the counts."""

import argparse
import json
import os
import sys
import time
from collections import Counter
from pathlib import Path

from benchmarks.robustness.case import GOOD, KINDS
from benchmarks.robustness.pool import run_all

MODULE = "benchmarks.robustness.families"
RULE = (
    "unclear: a refusal whose message does not name the argument, column, file or option at fault, does not say what "
    "to do, is not raised by candidly, or is longer than 2,048 characters; the docstring of benchmarks.robustness has "
    "the whole rule"
)


def main() -> int:
    """Run the chosen cases; the exit status is 0 if no case failed and at most 1 % are unclear."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.robustness", description=__doc__)
    parser.add_argument("--family", action="append", help="run this family only (may be repeated)")
    parser.add_argument("--match", default="", help="run only the cases whose names contain this text")
    parser.add_argument("--list", action="store_true", help="list the cases and stop")
    parser.add_argument("--jobs", type=int, default=min(2, os.cpu_count() or 1), help="number of worker processes")
    parser.add_argument("--slowest", type=int, default=0, help="also print this number of slowest cases")
    parser.add_argument("--out", type=Path, help="write the verdicts to this JSON file")
    options = parser.parse_args()
    from benchmarks.robustness.families import all_cases

    cases = [
        case
        for case in all_cases()
        if (options.family is None or case.family in options.family) and options.match in case.name
    ]
    if options.list:
        for case in cases:
            print(f"{case.family}: {case.name}")
        return 0
    started = time.monotonic()
    bar = (lambda done: print(f"\r{done}/{len(cases)}", end="", file=sys.stderr)) if sys.stderr.isatty() else print_none
    results = run_all(cases, options.jobs, MODULE, bar)
    if sys.stderr.isatty():
        print("\r", end="", file=sys.stderr)
    print(table(results))
    print(f"\n{RULE}\n{time.monotonic() - started:.0f} s\n")
    for case, verdict, _ in results:
        if verdict.kind not in GOOD:
            print(f"{verdict.kind}: {case.family}: {case.name}: {verdict.text}")
    for case, _, seconds in sorted(results, key=lambda result: -result[2])[: options.slowest]:
        print(f"{seconds:6.1f} s  {case.family}: {case.name}")
    if options.out is not None:
        found = [
            {"family": case.family, "case": case.name, "verdict": verdict.kind, "text": verdict.text}
            for case, verdict, _ in results
        ]
        options.out.write_text(json.dumps(found, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    return int(not passed(results))


def print_none(done: int) -> None:
    """Show no progress."""


def table(results) -> str:
    """Return the counts of verdicts by family, as text."""
    families = list(dict.fromkeys(case.family for case, _, _ in results))
    counts = {
        family: Counter(verdict.kind for case, verdict, _ in results if case.family == family) for family in families
    }
    counts["all"] = sum(counts.values(), Counter())
    heads = ("family", "cases", *KINDS)
    lines = [heads, *((family, count.total(), *(count[kind] for kind in KINDS)) for family, count in counts.items())]
    widths = [max(len(str(line[j])) for line in lines) for j in range(len(heads))]
    return "\n".join(
        "  ".join(
            [f"{line[0]:{widths[0]}}", *(f"{cell:>{width}}" for cell, width in zip(line[1:], widths[1:], strict=True))]
        )
        for line in (tuple(map(str, line)) for line in lines)
    )


def passed(results) -> bool:
    """Return whether no case failed and at most 1 % of the cases are unclear."""
    count = Counter(verdict.kind for _, verdict, _ in results)
    failed = sum(count[kind] for kind in KINDS if kind not in (*GOOD, "unclear"))
    return failed == 0 and count["unclear"] <= 0.01 * len(results)


if __name__ == "__main__":
    sys.exit(main())
