"""The command line: parse, import late, call the library, print."""

from collections.abc import Sequence

import tyro

import candidly

app = tyro.extras.SubcommandApp()


@app.command
def demo(seeds: int = 5, device: str = "auto") -> None:
    """Compare four methods on handwritten digits with ambiguous labels, in about a minute.

    The data are scikit-learn's 8x8 digits with instance-dependent candidate sets: a network that was trained on the
    true labels makes confusable digits candidates of each other.

    Args:
        seeds: How many random splits to average over; they train together.
        device: Where to train: auto, cpu or cuda.
    """
    from candidly.demo import run

    run(seeds, device)


@app.command
def methods() -> None:
    """List the methods."""
    from candidly.methods import METHODS

    for name, method in METHODS.items():
        print(f"{name:8} {(method.__doc__ or '').splitlines()[0]}")


def main(argv: Sequence[str] | None = None) -> None:
    """Run the command line on `argv`, by default the process's own arguments."""
    description = f"candidly {candidly.__version__}: learning from ambiguous labels."
    app.cli(prog="candidly", description=description, args=argv)
