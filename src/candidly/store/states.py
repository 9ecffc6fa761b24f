"""Saving and loading tensors and facts, as safetensors and JSON, never pickle.

A saved state is a pair of files in one folder: ``<stem>-<hash>.safetensors`` holds the tensors, and ``<stem>.json``
names that file and holds its sha256 and the facts. The tensor file is completely written before the JSON file is
replaced, and older tensor files are deleted only afterwards, so a process that is killed at any moment leaves the old
pair or the new one. There must be one writer per folder and stem.

What is written once, such as a model, is a folder with plain names instead: ``<stem>.safetensors``, ``<stem>.json`` and
additional files. The folder is created and replaced as a whole.
"""

import hashlib
import json
import os
import re
import secrets
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from types import MappingProxyType
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load, save
from torch import Tensor

from candidly.store.files import MOST_JSON, read_json, replace, sync_folder, to_json

__all__ = ["read", "write", "write_folder"]

FORMAT = 1


def write(
    folder: str | os.PathLike[str], tensors: Mapping[str, Tensor], facts: Mapping[str, Any], *, stem: str = "state"
) -> None:
    """Save tensors and facts, replacing those saved under the same stem.

    Parameters
    ----------
    folder : path
        Created if missing.
    tensors : mapping of str to Tensor
        Dense tensors on any device; they may share memory.
    facts : mapping
        JSON types only; tuples come back as lists.
    stem : str, default "state"
        First part of the file names: letters, digits, ``_``, ``-`` and dots, not starting with a dot.

    Raises
    ------
    ValueError
        If the facts are not JSON or a value is not a dense tensor. Then nothing is written.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     write(folder, {"q": torch.eye(2)}, {"epoch": 3})
    ...     tensors, facts = read(folder)
    >>> tensors["q"].tolist(), facts
    ([[1.0, 0.0], [0.0, 1.0]], {'epoch': 3})
    """
    _check_stem(stem)
    data, sha256 = _pack(tensors)
    name = f"{stem}-{sha256[:16]}.safetensors"
    index = _index(name, sha256, facts)
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    replace(folder / name, data)
    replace(folder / f"{stem}.json", index)
    for path in folder.iterdir():
        if _is_of_pair(path.name, stem) and path.name != name:
            path.unlink()


def write_folder(
    folder: str | os.PathLike[str],
    tensors: Mapping[str, Tensor],
    facts: Mapping[str, Any],
    *,
    stem: str = "model",
    more: Mapping[str, bytes] = MappingProxyType({}),
) -> None:
    """Write a folder atomically: if anything fails, it has its old content.

    Parameters
    ----------
    folder : path
        A new or empty folder, or one that this function wrote, which is replaced. A process that is killed at the worst
        moment leaves the old folder next to it, as ``.<name>-<16 hex digits>.old``.
    tensors, facts : mappings
        As in `write`; `read` reads them.
    stem : str, default "model"
        First part of the names of these two files.
    more : mapping of str to bytes, optional
        Additional files by name.

    Raises
    ------
    ValueError
        If something cannot be written, or the folder contains other files. Then nothing is written.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as place:
    ...     write_folder(f"{place}/mine", {"q": torch.eye(2)}, {"classes": 2}, more={"notes.txt": b"none"})
    ...     sorted(path.name for path in Path(place, "mine").iterdir())
    ['model.json', 'model.safetensors', 'notes.txt']
    """
    _check_stem(stem)
    name = f"{stem}.safetensors"
    for other in more:
        _check_stem(other)
        if other in (name, f"{stem}.json"):
            raise ValueError(f"more contains {other!r}, the file that holds the tensors or facts; rename it")
    data, sha256 = _pack(tensors)
    index = _index(name, sha256, facts, more=sorted(more))
    folder = Path(os.path.realpath(folder))
    _check_ours(folder, stem, more)
    with _new_folder(folder) as temporary:
        for file, content in {**more, name: data, f"{stem}.json": index}.items():
            replace(temporary / file, content)


def read(
    folder: str | os.PathLike[str], device: str | torch.device = "cpu", *, stem: str = "state"
) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Load and validate what `write` or `write_folder` saved.

    Parameters
    ----------
    folder : path
        The folder that was written.
    device : str or torch.device, default "cpu"
        Where to put the tensors.
    stem : str, default "state"
        The stem that was used for writing.

    Returns
    -------
    tensors : dict of str to Tensor
    facts : dict

    Raises
    ------
    FileNotFoundError
        If one of the two files is missing.
    ValueError
        If a file is damaged, was changed, or has an unknown format version.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     read(folder)  # doctest: +ELLIPSIS
    Traceback (most recent call last):
        ...
    FileNotFoundError: ...state.json does not exist; check the folder, or save the state first
    """
    _check_stem(stem)
    path = Path(folder) / f"{stem}.json"
    if not path.is_file():
        raise FileNotFoundError(f"{path} does not exist; check the folder, or save the state first")
    name, sha256, facts = _read_index(path, stem)
    path = path.with_name(name)
    if not path.is_file():
        raise FileNotFoundError(f"{path} does not exist; restore it from a copy, or save the state again")
    data = path.read_bytes()
    if hashlib.sha256(data).hexdigest() != sha256:
        raise ValueError(
            f"{path} ({len(data)} bytes) is truncated or was changed: its sha256 is not {sha256}; "
            "restore it from a copy, or save the state again"
        )
    try:
        tensors = load(data)
    except (
        SafetensorError,
        KeyError,
        RuntimeError,
        TypeError,
    ) as error:  # the last three for an unknown dtype or a wrong shape
        reason = str(error).partition("\n")[0]
        raise ValueError(
            f"{path} is not a safetensors file that torch can read ({reason}); save the state again"
        ) from None
    return {key: tensor.to(device) for key, tensor in tensors.items()}, facts


def _pack(tensors: Mapping[str, Tensor]) -> tuple[bytes, str]:
    """Return the content of a safetensors file, and its sha256."""
    data = save({name: _copy(name, tensor) for name, tensor in tensors.items()})
    return data, hashlib.sha256(data).hexdigest()


def _index(name: str, sha256: str, facts: Mapping[str, Any], **more: Any) -> bytes:
    """Return the content of the JSON file."""
    facts = dict(facts)
    to_json(facts, "facts")
    index = {"format": FORMAT, "tensors": name, "sha256": sha256, **more, "facts": facts}
    text = json.dumps(index, indent=1).encode()
    if len(text) > MOST_JSON:
        raise ValueError(
            f"the facts are {len(text)} bytes of JSON, more than the limit of {MOST_JSON}; save long lists as tensors"
        )
    return text


def _is_of_pair(name: str, stem: str) -> bool:
    """Return whether a name is that of a tensor file with a hash, or of a killed writer's temporary file."""
    return bool(re.fullmatch(rf"{re.escape(stem)}(-[0-9a-f]{{16}}){{1,2}}\.(safetensors|tmp)", name))


def _check_ours(folder: Path, stem: str, more: Mapping[str, bytes]) -> None:
    """Raise ValueError for a folder with files that `write_folder` did not write."""
    if not folder.exists():
        return
    if not folder.is_dir():
        raise ValueError(f"{folder} is a file; choose another name for the folder")
    ours = {f"{stem}.json", f"{stem}.safetensors", *more}
    with suppress(FileNotFoundError, ValueError):  # the folder is empty or damaged: then fewer files are known
        before = read_json(folder / f"{stem}.json").get("more")
        ours |= {one for one in before if isinstance(one, str)} if isinstance(before, list) else set()
    for path in sorted(folder.iterdir()):
        if path.is_dir() or not (path.name in ours or _is_of_pair(path.name, stem)):
            raise ValueError(f"{folder} holds {path.name!r}, which would be deleted; choose a new or an empty folder")


@contextmanager
def _new_folder(folder: Path) -> Iterator[Path]:
    """Yield a temporary folder and rename it to `folder` afterwards; if anything fails, restore the old state."""
    missing = [parent for parent in folder.parents if not parent.exists()]
    mark = f".{folder.name}-{secrets.token_hex(8)}"
    temporary, old = folder.with_name(f"{mark}.tmp"), folder.with_name(f"{mark}.old")
    try:
        temporary.mkdir(parents=True)
        yield temporary
        if folder.exists():
            shutil.copymode(folder, temporary)
            os.rename(folder, old)
        os.rename(temporary, folder)
    except BaseException:
        shutil.rmtree(temporary, ignore_errors=True)
        if old.exists() and not folder.exists():
            os.rename(old, folder)
        with suppress(OSError):  # the parent was not created, or another process uses it now
            for parent in missing:
                parent.rmdir()
        raise
    try:
        sync_folder(folder.parent)
    finally:
        if old.exists():
            shutil.rmtree(old)


def _read_index(path: Path, stem: str) -> tuple[str, str, dict[str, Any]]:
    """Return tensor file name, sha256 and facts from the JSON file."""
    index = read_json(path)
    version = index.get("format")
    if version != FORMAT:
        raise ValueError(f"{path} has format version {version!r}, but this candidly reads {FORMAT}; update candidly")
    name, sha256, facts = index.get("tensors"), index.get("sha256"), index.get("facts")
    if not (isinstance(name, str) and isinstance(sha256, str) and isinstance(facts, dict)):
        raise ValueError(
            f"{path} lacks 'tensors', 'sha256' or 'facts'; restore it from a copy, or save the state again"
        )
    if not re.fullmatch(rf"{re.escape(stem)}(-[0-9a-f]{{16}})?\.safetensors", name):
        raise ValueError(f"{path} points to {name!r}, which is not a tensor file next to it; restore it from a copy")
    return name, sha256, facts


def _check_stem(stem: str) -> None:
    if not re.fullmatch(r"[\w-][\w.-]*", stem):
        raise ValueError(f"stem is {stem!r}; pass letters, digits, '_', '-' and dots, not starting with a dot")


def _copy(name: str, tensor: Tensor) -> Tensor:
    """Return a contiguous copy that shares no memory, which is all that safetensors can store."""
    if not isinstance(tensor, Tensor) or tensor.layout != torch.strided:
        raise ValueError(f"{name!r} is {type(tensor).__name__}; pass dense tensors, and everything else as facts")
    if name == "__metadata__":
        raise ValueError("a tensor is named '__metadata__', which safetensors reserves; rename it")
    return tensor.detach().to("cpu", copy=True, memory_format=torch.contiguous_format)
