"""Mean number of candidates of the paper's image datasets, beside the numbers that the paper prints.

    python -m benchmarks.candidates --data DIR

Makes the candidate sets of every dataset that is found (see `candidly.bench.datasets`): instance-dependent ones from a
network trained on the true labels, as in the published experiments, and uniform and hierarchical flips for CIFAR.
The mean is over the training rows.
"""

import argparse
import json
import tempfile
import time
from pathlib import Path

from candidly.bench import datasets as sets

PRINTED = {"mnist": 6.304, "fmnist": 5.953, "kmnist": 6.342, "svhn": 4.878, "cifar10": 1.900, "cifar100": 1.399}


def main() -> None:
    """Make the candidate sets; print and save their mean sizes."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", help="folder with the datasets' files")
    parser.add_argument("--datasets", default=",".join(PRINTED))
    parser.add_argument("--device", default="auto")
    parser.add_argument("--out", default="benchmarks/results/candidates.json")
    args = parser.parse_args()
    out = Path(args.out)
    results = json.loads(out.read_text()) if out.exists() else {}
    for name in args.datasets.split(","):
        if name not in PRINTED:
            parser.error(f"the paper prints no number for {name!r}; choose from {', '.join(PRINTED)}")
        start = time.perf_counter()
        try:
            with tempfile.TemporaryDirectory() as folder:
                dataset = sets.load(name, Path(folder), args.data, device=args.device)
        except FileNotFoundError as error:
            print(f"{name:9} not found: {str(error).splitlines()[0]}")
            continue
        mean = float(dataset.S[: dataset.num_train].sum(1).mean())
        seconds = time.perf_counter() - start
        results[name] = {"mean": round(mean, 4), "printed": PRINTED[name], "made": sets.DEFAULT_STEPS[name]}
        out.write_text(json.dumps(results, indent=1) + "\n")
        difference = mean - PRINTED[name]
        print(f"{name:9} {mean:.3f}, printed {PRINTED[name]:.3f}, difference {difference:+.3f} ({seconds:.0f} s)")


if __name__ == "__main__":
    main()
