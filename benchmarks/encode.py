"""Features of an image dataset from a pretrained encoder, as float16 in files of less than 16 MiB.

    python -m benchmarks.encode --data DIR --out runs/features    # cifar10, EfficientNet-Lite0, 256 numbers
    python -m benchmarks.encode --data DIR --out FOLDER --dataset cifar100 --components 128 --rows 2000

Images are resized on the device (bicubic with antialiasing, 32 to 224 pixels for EfficientNet-Lite0). Components are
computed from at most 10,000 training rows. `read` returns what was written.
"""

import argparse
import json
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch

from candidly import data
from candidly.encoders import ImageEncoder
from candidly.tables import Provenance

MOST_BYTES = 15 << 20  # of a file


def encode(
    name: str, root: str | None, out: Path, encoder: str, components: int | None, rows: int | None, device: str
) -> dict[str, Any]:
    """Encode a dataset, write the features, and return what was measured."""
    dataset = data.load(name, root)
    X = np.asarray(dataset.X)[:rows]
    if X.ndim != 4 or X.dtype != np.uint8:
        raise SystemExit(f"{name} has no images of bytes; name an image dataset")
    transformer = ImageEncoder(encoder, n_components=components, device=device, verbose=1)
    started = time.perf_counter()
    transformer.fit(X[: dataset.num_train])
    loaded = time.perf_counter()
    features = transformer.transform(X).astype(np.float16)
    seconds = time.perf_counter() - loaded
    out.mkdir(parents=True, exist_ok=True)
    number = -(-features.nbytes // MOST_BYTES)
    for i, part in enumerate(np.array_split(features, number)):
        np.save(out / f"features-{i}.npy", part, allow_pickle=False)
    found = {
        "dataset": name,
        "rows": len(X),
        "features": features.shape[1],
        "files": number,
        "seconds_to_load_and_fit": round(loaded - started, 2),
        "seconds": round(seconds, 2),
        "images_per_second": round(len(X) / seconds, 1),
        "device": torch.cuda.get_device_name() if torch.cuda.is_available() and device != "cpu" else "cpu",
        "encoder": Provenance.list_to_json([transformer.provenance("image")])[0],
    }
    (out / "features.json").write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    return found


def read(folder: Path) -> np.ndarray:
    """Return the features that were written to a folder, one row per row of the dataset, in float32."""
    number = json.loads((folder / "features.json").read_text(encoding="utf-8"))["files"]
    parts = [np.load(folder / f"features-{i}.npy", allow_pickle=False) for i in range(number)]
    return np.concatenate(parts).astype(np.float32)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", help="folder with the files of the datasets")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--dataset", default="cifar10")
    parser.add_argument("--encoder", default="efficientnet-lite0")
    parser.add_argument("--components", type=int, default=256, help="0 keeps all features")
    parser.add_argument("--rows", type=int, help="only the first rows")
    parser.add_argument("--device", default="auto")
    given = parser.parse_args()
    components = given.components or None
    print(json.dumps(encode(given.dataset, given.data, given.out, given.encoder, components, given.rows, given.device)))


if __name__ == "__main__":
    main()
