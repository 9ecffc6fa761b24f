"""What the tests of files and states share."""

import json

import torch

from candidly.store import files, states

OLD = ({"q": torch.tensor([1.0, 2.0])}, {"epoch": 1})


def assert_holds(folder, pair, **keywords):
    tensors, facts = states.read(folder, **keywords)
    assert facts == pair[1]
    assert tensors.keys() == pair[0].keys()
    for name, tensor in tensors.items():
        assert tensor.dtype == pair[0][name].dtype
        assert torch.equal(tensor, pair[0][name])


def listing(folder):
    """Everything below a folder, hidden or not, with contents."""
    return {str(path.relative_to(folder)): path.read_bytes() if path.is_file() else None for path in folder.rglob("*")}


def forge_index(path, change):
    """Change the index of a state as an attacker would: with the right checksum."""
    index = json.loads(path.read_text())
    index.pop("checksum", None)
    change(index)
    path.write_text(json.dumps(index | {"checksum": files.checksum(index, "index")}))
