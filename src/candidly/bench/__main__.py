"""``python -m candidly.bench SPEC.toml``: run an experiment where only the core dependencies are installed."""

import argparse
import sys

from candidly.bench import read_spec, sweep


def main(argv: list[str] | None = None) -> int:
    """Parse the command line, run the experiment, return the exit status."""
    parser = argparse.ArgumentParser(prog="python -m candidly.bench", description="Run an experiment from a TOML file.")
    parser.add_argument("spec", help="TOML file; see the documentation of candidly.bench.read_spec")
    parser.add_argument("--out", default="runs", help="folder for the runs (default: runs)")
    parser.add_argument("--data", help="folder with the datasets' files")
    parser.add_argument("--device", default="auto", help="auto, cpu or cuda (default: auto)")
    parser.add_argument("--jobs", type=int, help="runs that train at the same time (default: 1, on CUDA up to 4)")
    parser.add_argument("--retry-failed", action="store_true", help="try again what failed before")
    parser.add_argument("--download", action="store_true", help="download datasets that are missing (needs pooch)")
    given = vars(parser.parse_args(argv))
    try:
        outcome = sweep(read_spec(given.pop("spec")), given.pop("out"), root=given.pop("data"), progress=True, **given)
    except (ImportError, OSError, ValueError) as error:
        parser.exit(2, f"{error}\n")
    except KeyboardInterrupt:
        parser.exit(130, "interrupted; the same command goes on\n")
    print(outcome)
    return 1 if outcome.failed else 0


if __name__ == "__main__":
    sys.exit(main())
