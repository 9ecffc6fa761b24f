"""Features of an image dataset from a pretrained encoder, as a dataset: an .npz file that commands can load.

    python -m benchmarks.encode --data DIR --out cifar10-features.npz    # cifar10, EfficientNet-Lite0, 256 numbers
    python -m benchmarks.encode --data DIR --out FILE.npz --dataset cifar100 --components 128 --rows 2000

Images are resized on the device (bicubic with antialiasing, 32 to 224 pixels for EfficientNet-Lite0). Components are
computed from at most 10,000 training rows. Features are rounded to float16.
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


def encode(
    name: str, root: str | None, out: Path, encoder: str, components: int | None, rows: int | None, device: str
) -> dict[str, Any]:
    """Encode a dataset, write the features with its labels and split, and return what was measured."""
    dataset = data.load(name, root)
    if dataset.X.ndim != 4 or dataset.X.dtype != np.uint8 or dataset.y is None or dataset.num_train is None:
        raise SystemExit(f"{name} has no labelled images of bytes with a fixed split; name an image dataset")
    parts = np.split(np.arange(len(dataset.X)), [dataset.num_train])
    kept = np.concatenate([part[:rows] for part in parts])
    X = np.asarray(dataset.X)[kept]
    num_train = len(parts[0][:rows])
    transformer = ImageEncoder(encoder, n_components=components, device=device, verbose=1)
    started = time.perf_counter()
    transformer.fit(X[:num_train])
    loaded = time.perf_counter()
    features = transformer.transform(X).astype(np.float16)
    seconds = time.perf_counter() - loaded
    labels = {"S": dataset.S[kept], "y": dataset.y[kept], "classes": np.array(dataset.classes)}
    np.savez_compressed(out, X=features, **labels, num_train=num_train)
    return {
        "dataset": name,
        "rows": len(X),
        "features": features.shape[1],
        "seconds_to_load_and_fit": round(loaded - started, 2),
        "seconds": round(seconds, 2),
        "images_per_second": round(len(X) / seconds, 1),
        "device": torch.cuda.get_device_name() if torch.cuda.is_available() and device != "cpu" else "cpu",
        "encoder": Provenance.list_to_json([transformer.provenance("image")])[0],
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", help="folder with the files of the datasets")
    parser.add_argument("--out", type=Path, required=True, help="the .npz file")
    parser.add_argument("--dataset", default="cifar10")
    parser.add_argument("--encoder", default="efficientnet-lite0")
    parser.add_argument("--components", type=int, default=256, help="0 keeps all features")
    parser.add_argument("--rows", type=int, help="only the first rows of training and test rows")
    parser.add_argument("--device", default="auto")
    given = parser.parse_args()
    components = given.components or None
    print(json.dumps(encode(given.dataset, given.data, given.out, given.encoder, components, given.rows, given.device)))


if __name__ == "__main__":
    main()
