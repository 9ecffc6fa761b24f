"""docs/evidence/speed.md: the tables between its markers, and the plot, from the result files of `benchmarks.speed`."""

import importlib.util
import json
from collections.abc import Iterable
from pathlib import Path
from statistics import mean
from typing import Any

from benchmarks import growth
from benchmarks.measure import say

FOLDER, PAGE, PLOT = Path("benchmarks/results"), Path("docs/evidence/speed.md"), Path("docs/evidence/speed-growth.svg")
BEGIN, END = "<!-- begin speed tables -->", "<!-- end speed tables -->"
NAMES = {
    "proden": "PRODEN", "conf+proden": "Conf+PRODEN", "crosel": "CroSel", "valen": "VALEN", "cc": "CC", "cavl": "CAVL",
    "pop": "POP", "rc": "RC",
}  # fmt: skip
PUBLISHED = {  # the paper's public code, seconds for one model's 200 epochs, on one H200
    ("lost", "proden"): 33.2, ("lost", "crosel"): 177.7, ("mnist", "proden"): 467.0, ("cifar10", "proden"): 768.0,
}  # fmt: skip
Section = dict[str, Any]


def write(folder: Path) -> None:
    """Write the page and the plot, without results of --quick."""
    files = {kind: folder / f"speed-{kind}.json" for kind in ("cuda", "cpu")}
    found = {kind: json.loads(path.read_text(encoding="utf-8")) for kind, path in files.items() if path.exists()}
    found = {
        kind: {name: section for name, section in book.items() if not section.get("quick")}
        for kind, book in found.items()
    }
    found = {kind: book for kind, book in found.items() if book}
    if not found:
        raise SystemExit(f"{folder} holds no speed-cpu.json or speed-cuda.json; measure first")
    before, rest = PAGE.read_text(encoding="utf-8").split(BEGIN)
    after = rest.split(END)[1]
    PAGE.write_text(before + BEGIN + "\n\n" + "\n\n".join(blocks(found)) + "\n\n" + END + after, encoding="utf-8")
    say(f"wrote {PAGE}")
    kind = drawn(found)
    if kind is None or importlib.util.find_spec("matplotlib") is None:
        say(f"{PLOT} was not drawn: " + ("growth was not measured" if kind is None else "matplotlib is not installed"))
    else:
        section = found[kind]["growth"]
        growth.draw(section["results"], section["machine"]["device"], PLOT)
        say(f"wrote {PLOT}")


def complete(book: Section, name: str) -> bool:
    return name in book and "error" not in book[name]


def blocks(found: dict[str, Section]) -> Iterable[str]:
    """Yield the paragraphs and tables of all devices, GPU first."""
    for kind, book in found.items():
        yield f"## On a {'GPU' if kind == 'cuda' else 'CPU'}"
        usual = where(next(iter(book.values())))
        yield f"Where nothing else is said: {usual}"
        for render, names in RENDERERS.items():
            sections = [book[name] for name in names if complete(book, name)]
            if sections:
                yield from render(book)
                yield from {f"This was measured on {place}" for place in map(where, sections) if place != usual}
        if kind == drawn(found):
            yield f"![Seconds per epoch by rows, classes, features and runs]({PLOT.name})"


def drawn(found: dict[str, Section]) -> str | None:
    """Return the device whose growth is drawn."""
    return next((kind for kind, book in found.items() if complete(book, "growth")), None)


def table(header: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    titles = list(header)
    lines = [titles, ["---"] * len(titles), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def where(section: Section) -> str:
    """Describe the machine and the versions of a section."""
    machine, versions = section["machine"], section["versions"]
    threads = "one thread" if machine["threads"] == 1 else f"{machine['threads']} threads"
    host = f"{machine['cpu']}, {machine['cores']} cores, {threads}"
    device = host if machine["device"] == "CPU" else f"{machine['device']} ({host})"
    return f"{device}; " + ", ".join(f"{name} {number}" for name, number in versions.items()) + f"; {section['date']}."


def timed(case: Section, name: str, dataset: str, device: str) -> list[str]:
    """Return the columns of a case: seconds, set-up, per step, least possible, per model, and the paper's code."""
    each = case["median_seconds"] / case["runs"]
    floor = case.get("floor", {}).get("floor_us")
    published = PUBLISHED.get((dataset, name)) if "H200" in device and case["epochs"] == 200 else None
    return [
        number(case["median_seconds"]),
        number(case["median_one_epoch_seconds"]),
        number(case["us_per_step"]),
        "" if floor is None else f"{number(floor)} ({case['us_per_step'] / floor:.1f}×)",
        number(each),
        "" if published is None else f"{number(published)} ({published / each:.0f}×)",
    ]


COLUMNS = ("seconds", "one epoch alone", "µs per step", "floor, µs", "s per model", "paper's code, s per model")


def number(value: float) -> str:
    """Format a number with three digits."""
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def stacked(book: Section) -> Iterable[str]:
    section = book["stacked"]
    cases, device = section["results"], section["machine"]["device"]
    any_ = next(iter(cases.values()))
    yield "### Stacked runs"
    yield (
        f"PRODEN on lost, {any_['epochs']} epochs of {any_['steps']} steps: complete calls of `candidly.fit`, "
        f"medians of {section['repeats']} after one that is not timed."
    )
    rows = ([runs, *timed(case, "proden", "lost", device)] for runs, case in cases.items())
    yield table(("runs", *COLUMNS), rows)


def methods(book: Section) -> Iterable[str]:
    section = book["methods"]
    cases, device = section["results"], section["machine"]["device"]
    any_ = next(iter(cases.values()))
    yield "### Methods"
    yield (
        f"{any_['runs']} runs on lost, {any_['epochs']} epochs, medians of {section['repeats']}. "
        "The first 10 epochs of CroSel and VALEN are their warm-up, which is cheaper."
    )
    rows = (
        [NAMES[name], f"{case['ratio_to_proden']:.2f}", *timed(case, name, "lost", device)]
        for name, case in cases.items()
    )
    yield table(("method", "ratio to PRODEN", *COLUMNS), rows)


def images(book: Section) -> Iterable[str]:
    """Render mnist and cifar10 together."""
    yield "### Images"
    yield (
        "PRODEN. mnist: 784 features, MLP, uniform candidate sets with q = 0.5. cifar10: ResNet-9, q = 0.1, weights in "
        "float32. Complete calls as above; test accuracy where all 200 epochs were trained."
    )
    rows = []
    for name in ("mnist", "cifar10"):
        if not complete(book, name):
            continue
        section = book[name]
        for case in section["results"].values():
            title = f"{name}, {case['computes']}" if "computes" in case else name
            shape = f"{case['rows']:,} × {case['runs']} × {case['epochs']}"
            whole = case["epochs"] == 200 and "test_accuracy" in case
            accuracy = f"{100 * mean(case['test_accuracy']):.2f} %" if whole else ""
            rows.append([title, shape, *timed(case, "proden", name, section["machine"]["device"]), accuracy])
    yield table(("dataset", "rows × runs × epochs", *COLUMNS, "test accuracy"), rows)


def rates(book: Section) -> Iterable[str]:
    section = book["rates"]
    found = section["results"]
    size = found["product_size"]
    names = {
        "copy_gb_per_s": "copy, bytes read and written, GB/s",
        "float32_tflops": f"float32 product of two {size}×{size} matrices, TFLOP/s",
        "tf32_tflops": "the same in TF32",
        "bfloat16_tflops": "the same in bfloat16",
        "smallest_kernel_us": "smallest kernel in a replayed graph, µs"
        if "replay_overhead_us" in found
        else "smallest operation, µs",
        "replay_overhead_us": "overhead of a replay, µs",
        "cache_bytes": "largest cache, MiB",
    }
    yield "### The device's ceilings"
    yield (
        "The floor above is the largest of three times: bytes at the rate of a copy, operations at that of a large "
        "product, and the chain of kernels that wait for each other at the smallest kernel's. Bytes that fit into the "
        "largest cache do not count."
    )
    shown = found | {"cache_bytes": found["cache_bytes"] / 2**20}
    yield table(("what", "measured"), ([title, number(shown[name])] for name, title in names.items() if name in shown))


def grown(book: Section) -> Iterable[str]:
    section = book["growth"]
    found = section["results"]
    base = ", ".join(f"{axis} = {size:,}" for axis, size in found["base"].items())
    yield "### Growth"
    yield (
        f"Seconds per epoch on made-up data, one size varied at a time from {base}, batches of {found['batch']}; "
        "medians of all epochs but the first. The slope is that of the logarithms over the last decade of sizes: 1 is "
        "linear. Conf+PRODEN cleans from the first epoch on."
    )
    rows, steep = [], []
    for axis, lines in found["axes"].items():
        for name, line in lines.items():
            first, last = line["points"][0], line["points"][-1]
            sizes = f"{first['size']:,} … {last['size']:,}"
            times = f"{number(first['median'])} … {number(last['median'])}"
            rows.append([f"{growth.LABELS[axis]} {axis}", name, sizes, times, f"{line['slope']:.2f}"])
            if line["slope"] > growth.STEEP:
                steep.append(f"{name} with {growth.LABELS[axis]} ({line['slope']:.2f})")
    yield table(("size", "method", "from … to", "seconds", "slope"), rows)
    yield f"Faster than linear (slope above {growth.STEEP}): {', '.join(steep) or 'nothing'}."


def textbook(book: Section) -> Iterable[str]:
    section = book["textbook"]
    found = section["results"]
    yield "### Against a textbook loop"
    yield (
        f"{found['runs']} stacked PRODEN runs against a loop with DataLoader, nn.Sequential, torch.optim.Adam and "
        "OneCycleLR, one model at a time, in one process on one CPU thread, taking turns; "
        f"{found['data']}, medians of {found['rounds']} rounds of {found['epochs_per_round']} epochs."
    )
    rows = [[name, number(1000 * value)] for name, value in found["medians"].items()]
    yield table(("", "ms per model and epoch"), [*rows, ["ratio", f"**{found['ratio']:.2f}**"]])


def profile(book: Section) -> Iterable[str]:
    section = book["profile"]
    yield "### Where a step's time goes"
    kind = "operators" if section["machine"]["device"] == "CPU" else "kernels"
    yield (
        f"The five {kind} that take most time of a method's main steps on lost, under torch's profiler. The time of a "
        "step was measured without it."
    )
    rows = []
    for name, case in section["results"].items():
        share = case.get("share_of_matrix_products")
        top = ", ".join(f"{short(row['name'])} {100 * row['share']:.0f} %" for row in case["top"][:5])
        wall, calls = number(case["wall_us_per_step"]), f"{case['calls_per_step']:.0f}"
        rows.append([name, wall, calls, *([] if share is None else [f"{100 * share:.0f} %"]), top])
    products = ["matrix products"] if kind == "operators" else []
    yield table(("", "a step, µs", kind, *products, "most time"), rows)


def short(name: str) -> str:
    plain = name.removeprefix("aten::").removeprefix("void ").split("(")[0].split("<")[0]
    return f"`{plain[-40:]}`"


RENDERERS = {
    textbook: ("textbook",),
    stacked: ("stacked",),
    methods: ("methods",),
    images: ("mnist", "cifar10"),
    rates: ("rates",),
    grown: ("growth",),
    profile: ("profile",),
}
