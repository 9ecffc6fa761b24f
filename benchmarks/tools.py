"""Whether other programs accept what candidly writes: Label Studio's validator, and Hugging Face's `datasets`.

    python -m venv tools && tools/bin/pip install label-studio-sdk datasets    # about 1 GB
    python -m benchmarks.tools --python tools/bin/python                       # results/tools.json, in a minute

The export of examples/make_birds.py is cleaned, and the results are checked with the packages of the other environment.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from candidly import store

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "benchmarks" / "results" / "tools.json"
EXPORT = ("--annotations", "label-studio.json", "--id", "id")
TABLE = ("birds.csv", "--candidates", "candidates", "--id", "id", "--labels", "label")
COMMANDS = (
    ("fit", *EXPORT, "--out", "model"),
    ("clean", *EXPORT, "--format", "label-studio", "--out", "cleaned.json"),
    (
        "predict",
        "model",
        "new-birds.csv",
        *("--format", "label-studio", "--question", "species,weight"),
        "--out",
        "new.json",
    ),
    ("clean", *TABLE, "--out", "texts.parquet"),
    ("clean", *TABLE, "--format", "huggingface", "--out", "numbers.parquet"),
    ("clean", *EXPORT, "--format", "argilla", "--out", "suggestions.parquet"),
)
# Runs in the other environment; its last line is printed as JSON.
CHECK = """
import json
from importlib.metadata import version
from datasets import load_dataset
from label_studio_sdk.label_interface import LabelInterface

names = ["dunnock", "finch", "robin", "sparrow", "wren"]
choices = "".join(f'<Choice value="{name}"/>' for name in names)
interface = LabelInterface(
    f'<View><Text name="weight" value="$weight"/><Choices name="species" toName="weight">{choices}</Choices></View>'
)
found = {"label-studio-sdk": version("label-studio-sdk"), "datasets": version("datasets")}
for file in ("cleaned.json", "new.json"):
    predictions = [one for task in json.load(open(file)) for one in task["predictions"]]
    refused = [one for one in predictions if interface.validate_prediction(one, return_errors=True)]
    found[file] = {"predictions": len(predictions), "refused": len(refused)}
wrong = json.loads(json.dumps(predictions[0]))
wrong["result"][0]["value"]["choices"] = ["owl"]
found["a wrong choice is refused"] = bool(interface.validate_prediction(wrong, return_errors=True))
for file in ("texts.parquet", "numbers.parquet", "suggestions.parquet"):
    rows = load_dataset("parquet", data_files=file, cache_dir="cache")["train"]
    found[file] = {name: str(kind) for name, kind in rows.features.items()}
texts, numbers = (load_dataset("parquet", data_files=f"{one}.parquet", cache_dir="cache")["train"]
                  for one in ("texts", "numbers"))
kinds = numbers.features
same = all(
    [kinds["kept"].feature.int2str(j) for j in number["kept"]] == text["kept"]
    and kinds["predicted"].int2str(number["predicted"]) == text["predicted"]
    for text, number in zip(texts, numbers, strict=True)
)
found["numbers are the same classes"] = same
print(json.dumps(found))
"""


def main() -> None:
    """Clean, check, and write what was found."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--python", required=True, help="interpreter with label-studio-sdk and datasets")
    interpreter = Path(parser.parse_args().python).absolute()
    environment = os.environ | {"PYTHONPATH": str(ROOT / "src")}
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run([sys.executable, ROOT / "examples" / "make_birds.py"], cwd=folder, check=True)
        for command in COMMANDS:
            subprocess.run([sys.executable, "-m", "candidly", *command], cwd=folder, check=True, env=environment)
        quiet = os.environ | {"HF_DATASETS_DISABLE_PROGRESS_BARS": "1", "HF_HUB_OFFLINE": "1"}
        done = subprocess.run(
            [interpreter, "-c", CHECK], cwd=folder, check=True, env=quiet, stdout=subprocess.PIPE, text=True
        )
    found = json.loads(done.stdout.splitlines()[-1])
    print(json.dumps(found, indent=1))
    store.replace(RESULTS, (json.dumps(found, indent=1) + "\n").encode())


if __name__ == "__main__":
    main()
