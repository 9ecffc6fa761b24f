"""Tensors and facts on disk: safetensors and JSON, never pickle.

A saved state is a pair of files in one folder: ``<stem>-<hash>.safetensors`` holds the tensors, and ``<stem>.json``
names that file and holds its sha256 and the facts. The tensor file is complete on disk under its own name before the
JSON file is replaced, and older tensor files go only afterwards, so a kill at any moment leaves the old pair or the new
one. One writer per folder and stem.
"""

import hashlib
import json
import os
import re
import secrets
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load, save
from torch import Tensor

__all__ = ["digest", "read", "replace", "write"]

FORMAT = 1


def digest(config: Mapping[str, Any]) -> str:
    """Hash a configuration: the same values give the same digits, in whatever order its keys come.

    Parameters
    ----------
    config : mapping
        JSON types only (tuples count as lists); NaN and infinity are refused.

    Returns
    -------
    str
        The first 16 hexadecimal digits of the sha256 of the canonical JSON.

    Raises
    ------
    ValueError
        If a value is no JSON value or a key is no string.

    Examples
    --------
    >>> digest({"method": "proden", "seed": 1}) == digest({"seed": 1, "method": "proden"})
    True
    >>> len(digest({}))
    16
    """
    text = _to_json(config, "config", sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def write(
    folder: str | os.PathLike[str], tensors: Mapping[str, Tensor], facts: Mapping[str, Any], *, stem: str = "state"
) -> None:
    """Save tensors and facts, replacing what was saved under the same stem.

    Parameters
    ----------
    folder : path
        Created if missing.
    tensors : mapping of str to Tensor
        On any device, in any memory layout; tensors may share memory.
    facts : mapping
        JSON types only; tuples come back as lists.
    stem : str, default "state"
        First part of the file names: letters, digits, ``_``, ``-`` and dots, not starting with a dot.

    Raises
    ------
    ValueError
        If the facts are not JSON or a value is no dense tensor. Nothing is written then.

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
    facts = dict(facts)
    _to_json(facts, "facts")
    data = save({name: _copy(name, tensor) for name, tensor in tensors.items()})
    sha256 = hashlib.sha256(data).hexdigest()
    name = f"{stem}-{sha256[:16]}.safetensors"
    index = {"format": FORMAT, "tensors": name, "sha256": sha256, "facts": facts}
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    replace(folder / name, data)
    replace(folder / f"{stem}.json", json.dumps(index, indent=1).encode())
    leftover = re.compile(rf"{re.escape(stem)}(-[0-9a-f]{{16}}){{1,2}}\.(safetensors|tmp)")
    for path in folder.iterdir():
        if leftover.fullmatch(path.name) and path.name != name:
            path.unlink()


def read(
    folder: str | os.PathLike[str], device: str | torch.device = "cpu", *, stem: str = "state"
) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Load what `write` saved, after checking it.

    Parameters
    ----------
    folder : path
        The folder given to `write`.
    device : str or torch.device, default "cpu"
        Where the tensors go.
    stem : str, default "state"
        The stem given to `write`.

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
    except SafetensorError as error:
        raise ValueError(f"{path} is no safetensors file ({error}); save the state again") from error
    return {key: tensor.to(device) for key, tensor in tensors.items()}, facts


def replace(path: str | os.PathLike[str], data: bytes) -> None:
    """Write a file so that its name always stands for the whole old or the whole new content.

    Parameters
    ----------
    path : path
        In a folder that exists. A kill can leave a file ``<its stem>-<16 hex digits>.tmp`` behind, which means nothing.
    data : bytes
        The content.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     replace(Path(folder) / "note.txt", b"done")
    ...     (Path(folder) / "note.txt").read_text()
    'done'
    """
    path = Path(path)
    temporary = path.with_name(f"{path.stem}-{secrets.token_hex(8)}.tmp")
    try:
        with open(temporary, "xb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        if path.exists():
            shutil.copymode(path, temporary)
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)
    _sync(path.parent)


def _read_index(path: Path, stem: str) -> tuple[str, str, dict[str, Any]]:
    """Return tensor file name, sha256 and facts from the JSON file."""
    try:
        index = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:  # bad JSON or bad UTF-8
        raise ValueError(f"{path} is no JSON file ({error}); restore it from a copy, or save the state again") from None
    version = index.get("format") if isinstance(index, dict) else None
    if version != FORMAT:
        raise ValueError(f"{path} has format version {version!r}, known is {FORMAT}; read it with a newer candidly")
    name, sha256, facts = index.get("tensors"), index.get("sha256"), index.get("facts")
    if not (isinstance(name, str) and isinstance(sha256, str) and isinstance(facts, dict)):
        raise ValueError(
            f"{path} lacks 'tensors', 'sha256' or 'facts'; restore it from a copy, or save the state again"
        )
    if not re.fullmatch(rf"{re.escape(stem)}-[0-9a-f]{{16}}\.safetensors", name):
        raise ValueError(f"{path} points to {name!r}, which is no tensor file beside it; restore it from a copy")
    return name, sha256, facts


def _to_json(value: Mapping[str, Any], what: str, **style: Any) -> str:
    try:
        text = json.dumps(dict(value), allow_nan=False, **style)
    except (TypeError, ValueError) as error:
        raise ValueError(f"{what} cannot be written as JSON ({error}); keep to JSON types without NaN") from error
    _check_keys(value, what)
    return text


def _check_keys(value: Any, what: str) -> None:
    """Refuse keys that JSON would turn into strings: they would not come back as they were."""
    if isinstance(value, Mapping):
        for key, item in value.items():
            if not isinstance(key, str):
                raise ValueError(f"{what} has the key {key!r}; JSON keys are strings, pass {str(key)!r}")
            _check_keys(item, f"{what}[{key!r}]")
    elif isinstance(value, (list, tuple)):
        for i, item in enumerate(value):
            _check_keys(item, f"{what}[{i}]")


def _check_stem(stem: str) -> None:
    if not re.fullmatch(r"[\w-][\w.-]*", stem):
        raise ValueError(f"stem is {stem!r}; pass letters, digits, '_', '-' and dots, not starting with a dot")


def _copy(name: str, tensor: Tensor) -> Tensor:
    """Return a contiguous copy with memory of its own, all that safetensors stores."""
    if not isinstance(tensor, Tensor) or tensor.layout != torch.strided:
        raise ValueError(f"{name!r} is {type(tensor).__name__}; pass dense tensors, and everything else as facts")
    if name == "__metadata__":
        raise ValueError("a tensor is named '__metadata__', which safetensors reserves; rename it")
    return tensor.detach().to("cpu", copy=True, memory_format=torch.contiguous_format)


def _sync(folder: Path) -> None:
    """Make renames in the folder durable, where the system can."""
    if os.name == "posix":
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
