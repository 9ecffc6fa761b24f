"""Saving and loading tensors and facts, as safetensors and JSON, never pickle.

A saved state is a group of files in one folder. ``<stem>-<hash>.safetensors`` holds the tensors, and
``<stem>-<hash>.<name>`` any additional file; the hash is that of the content. The index ``<stem>.json`` names these
files, with their sha256, and holds the facts and a checksum of itself. Named files are completely written before the
index is replaced, and older ones are deleted only afterwards, so a process that is killed at any moment leaves the old
state or the new one. The next writer removes what the killed one left.

Writers of one state wait for each other: they lock ``<stem>.lock``. Readers need no lock. If a file that the index
names was deleted in the meantime, because the state was replaced, they read the index again.

Format 1, of version 0.1, is read, too: the index has no checksum, and the files of a model have plain names.
"""

import hashlib
import json
import os
import re
import reprlib
import shutil
import sys
import time
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load, save
from torch import Tensor

from candidly.store.files import MOST_JSON, checksum, parse_json, read_json, read_limited, replace, sync_folder, to_json
from candidly.store.lock import locked
from candidly.store.validation import instance, list_of, mapping, record, require, text

__all__ = ["change_facts", "check_folder", "read", "read_more", "tidy", "write", "write_folder"]

FORMAT = 2
_FORMAT_0_1 = 1
# How often a reader looks for files that a writer has just replaced, and the seconds between two attempts.
_ATTEMPTS = 100
_PAUSE = 0.002
_PLAIN = re.compile(r"[\w-][\w.-]*")


@dataclass(frozen=True)
class _File:
    """A file that an index names; files of version 0.1 besides the tensors have no sha256."""

    name: str
    sha256: str | None


@dataclass(frozen=True)
class _Index:
    """The content of ``<stem>.json``."""

    tensors: _File
    more: dict[str, _File]
    facts: dict[str, Any]


def write(
    folder: str | os.PathLike[str], tensors: Mapping[str, Tensor], facts: Mapping[str, Any], *, stem: str = "state"
) -> None:
    """Save tensors and facts, replacing those saved under the same stem. The folder may hold other files.

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
    _replace_state(Path(os.path.realpath(folder)), stem, tensors, facts, {}, ())


def write_folder(
    folder: str | os.PathLike[str],
    tensors: Mapping[str, Tensor],
    facts: Mapping[str, Any],
    *,
    stem: str = "model",
    more: Mapping[str, bytes] = MappingProxyType({}),
) -> None:
    """Save tensors, facts and additional files to a folder that holds nothing else, replacing what was saved there.

    Parameters
    ----------
    folder : path
        A new or empty folder, or one that this function wrote.
    tensors, facts : mappings
        As in `write`; `read` reads them.
    stem : str, default "model"
        First part of the file names.
    more : mapping of str to bytes, optional
        Additional files by name; `read_more` reads them.

    Raises
    ------
    ValueError
        If something cannot be written, or the folder contains other files. Then nothing is written.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as place:
    ...     write_folder(f"{place}/mine", {"q": torch.eye(2)}, {"classes": 2}, more={"notes.txt": b"none"})
    ...     print(sorted(path.name for path in Path(place, "mine").iterdir()))  # doctest: +ELLIPSIS
    ['model-....notes.txt', 'model-....safetensors', 'model.json']
    """
    _check_stem(stem)
    if not isinstance(more, Mapping):
        raise ValueError(f"more is {reprlib.repr(more)}; it must be a mapping from file names to bytes")
    for name, content in more.items():
        _check_stem(name, "a name in more")
        if name in ("safetensors", f"{stem}.safetensors", f"{stem}.json"):
            raise ValueError(f"more contains {name!r}, which is the name of a file of the model; rename it")
        if not isinstance(content, bytes):
            raise ValueError(f"more[{name!r}] is {reprlib.repr(content)}; it must be bytes, such as text.encode()")
    folder = Path(os.path.realpath(folder))
    check_folder(folder, stem=stem)
    _replace_state(folder, stem, tensors, facts, more, (f"{stem}.safetensors",))
    _remove_folders_0_1(folder)


def check_folder(folder: str | os.PathLike[str], *, stem: str = "model") -> bool:
    """Return whether a folder holds a saved state; raise ValueError if it holds anything else."""
    folder = Path(folder)
    if not folder.exists():
        return False
    if not folder.is_dir():
        raise ValueError(f"{folder} is a file; choose another name for the folder")
    ours = {f"{stem}.json", f"{stem}.lock", f"{stem}.safetensors", *_plain_names(folder, stem)}
    for path in sorted(folder.iterdir()):
        if path.is_dir() or not (path.name in ours or _is_of_state(path.name, stem)):
            raise ValueError(
                f"{folder} holds {path.name!r}, which is not part of a saved model; choose a new or an empty folder"
            )
    return (folder / f"{stem}.json").exists()


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
    path, data, facts = _read_named(folder, stem, lambda index: index.tensors)
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
    return {name: tensors[name].to(device) for name in sorted(tensors)}, facts  # safetensors has no order


def read_more(folder: str | os.PathLike[str], name: str, *, stem: str = "model") -> bytes:
    """Return the content of an additional file that `write_folder` saved.

    Raises
    ------
    KeyError
        If it was not saved.
    FileNotFoundError
        If it was saved but is missing.
    ValueError
        If the index or the file is damaged or was changed.
    """
    return _read_named(folder, stem, lambda index: index.more[name])[1]


def change_facts(
    folder: str | os.PathLike[str], change: Callable[[dict[str, Any]], dict[str, Any]], *, stem: str = "state"
) -> None:
    """Replace the facts of a saved state by what a function of them returns; tensors and other files stay.

    Only the index is replaced, while writers of the same state wait. If the function raises, nothing is changed.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     write(folder, {"q": torch.eye(2)}, {"epoch": 3})
    ...     change_facts(folder, lambda facts: facts | {"epoch": 4})
    ...     print(read(folder)[1])
    {'epoch': 4}
    """
    _check_stem(stem)
    path = Path(os.path.realpath(folder)) / f"{stem}.json"
    with locked(path.with_name(f"{stem}.lock"), wait=True):
        index = _decode(read_limited(path, MOST_JSON), path)
        files = {"safetensors": index.tensors, **index.more}
        if any(file.sha256 is None for file in files.values()):
            raise ValueError(f"{path} was written by version 0.1; save the model again with this version first")
        replace(path, _encode(files, change(index.facts), []))


def tidy(folder: str | os.PathLike[str], *, stem: str = "state") -> None:
    """Remove what a killed writer left, for a state that is not written again; do nothing if there is no state."""
    path = Path(os.path.realpath(folder)) / f"{stem}.json"
    if path.is_file():
        with locked(path.with_name(f"{stem}.lock"), wait=True):
            index = _decode(read_limited(path, MOST_JSON), path)
            keep = {index.tensors.name, *(file.name for file in index.more.values())}
            _remove_others(path.parent, stem, keep, ())


def _replace_state(
    folder: Path,
    stem: str,
    tensors: Mapping[str, Tensor],
    facts: Mapping[str, Any],
    more: Mapping[str, bytes],
    old: Collection[str],
) -> None:
    """Write a state; then remove what belongs to older ones, and files of version 0.1 with the names in `old`."""
    data = save({name: _copy(name, tensor) for name, tensor in tensors.items()})
    contents = {"safetensors": data, **more}
    files = {name: _File(*_content_name(stem, name, content)) for name, content in contents.items()}
    plain = sorted(name for name in {*old, *_plain_names(folder, stem)} if (folder / name).is_file())
    index = _encode(files, facts, plain)
    missing = [parent for parent in (folder, *folder.parents) if not parent.exists()]
    try:
        with locked(folder / f"{stem}.lock", wait=True):
            _put(folder, {files[name].name: content for name, content in contents.items()}, f"{stem}.json", index)
            _remove_others(folder, stem, {file.name for file in files.values()}, plain)
    except BaseException:
        with suppress(OSError):  # the folder was not created, or another process uses it now
            for parent in missing:
                parent.rmdir()
        raise
    for parent in missing:
        sync_folder(parent.parent)


def _remove_others(folder: Path, stem: str, keep: Collection[str], plain: Collection[str]) -> None:
    """Remove the files of older states, and those with plain names that version 0.1 wrote."""
    for path in folder.iterdir():
        if path.name not in keep and (path.name in plain or _is_of_state(path.name, stem)) and path.is_file():
            with suppress(PermissionError):  # Windows keeps files that are being read; the next writer tries again
                path.unlink()


def _put(folder: Path, contents: Mapping[str, bytes], index_name: str, index: bytes) -> None:
    """Write files and then the index that names them; if anything fails before, remove those that were not there."""
    new: list[Path] = []
    try:
        for name, content in contents.items():
            path = folder / name
            new += [] if path.exists() else [path]
            replace(path, content)
        replace(folder / index_name, index)
    except BaseException:
        path = folder / index_name
        if not (path.exists() and path.read_bytes() == index):
            for path in new:
                path.unlink(missing_ok=True)
        raise


def _content_name(stem: str, name: str, content: bytes) -> tuple[str, str]:
    """Return the name of a file with this content, and its sha256."""
    sha256 = hashlib.sha256(content).hexdigest()
    return f"{stem}-{sha256[:16]}.{name}", sha256


def _is_of_state(name: str, stem: str) -> bool:
    """Return whether a file is named after its content or is temporary, as opposed to the index and the lock."""
    return bool(re.fullmatch(rf"{re.escape(stem)}(-[0-9a-f]{{16}}){{1,2}}\..+", name))


def _plain_names(folder: Path, stem: str) -> set[str]:
    """Return the names of files that version 0.1 wrote, or that the present state has replaced but perhaps not removed.

    The index may be damaged: then fewer names are known.
    """
    try:
        index = read_json(folder / f"{stem}.json")
    except (OSError, ValueError):
        return set()
    found = index.get("more") if index.get("format") == _FORMAT_0_1 else index.get("replaces")
    names = [*(found if isinstance(found, list) else ()), index.get("tensors")]
    return {name for name in names if isinstance(name, str)}


def _remove_folders_0_1(folder: Path) -> None:
    """Remove hidden folders beside this one in which version 0.1 was killed while it replaced the folder."""
    pattern = re.compile(rf"\.{re.escape(folder.name)}-[0-9a-f]{{16}}\.(tmp|old)")
    with suppress(OSError):  # the parent cannot be listed
        for path in folder.parent.iterdir():
            if pattern.fullmatch(path.name) and path.is_dir() and not path.is_symlink():
                shutil.rmtree(path, ignore_errors=True)


def _encode(files: Mapping[str, _File], facts: Mapping[str, Any], replaces: list[str]) -> bytes:
    """Return the content of the index."""
    facts = dict(facts)
    to_json(facts, "facts")
    named = {name: {"name": file.name, "sha256": file.sha256} for name, file in files.items()}
    content = {"format": FORMAT, "tensors": named.pop("safetensors"), "more": named, "facts": facts}
    content |= {"replaces": replaces} if replaces else {}
    text = json.dumps({"checksum": checksum(content, "facts"), **content}, indent=1).encode()
    if len(text) > MOST_JSON:
        raise ValueError(
            f"the facts are {len(text)} bytes of JSON, more than the limit of {MOST_JSON}; save long lists as tensors"
        )
    return text


def _read_named(
    folder: str | os.PathLike[str], stem: str, choose: Callable[[_Index], _File]
) -> tuple[Path, bytes, dict[str, Any]]:
    """Return path and content of a file that the index names, and the facts, all of one saved state."""
    _check_stem(stem)
    path = Path(folder) / f"{stem}.json"
    if not path.is_file():
        raise FileNotFoundError(f"{path} does not exist; check the folder, or save the state first")
    known, index = None, None
    for _ in range(_ATTEMPTS):
        content = read_limited(path, MOST_JSON)
        if index is None or content != known:
            known, index = content, _decode(content, path)
        file = choose(index)
        named = path.with_name(file.name)
        try:
            data = read_limited(named, sys.maxsize)
        except FileNotFoundError:
            time.sleep(_PAUSE)
            continue
        if file.sha256 is not None and hashlib.sha256(data).hexdigest() != file.sha256:
            raise ValueError(
                f"{named} ({len(data)} bytes) is truncated or was changed: its sha256 is not {file.sha256}; "
                "restore it from a copy, or save the state again"
            )
        return named, data, index.facts
    raise FileNotFoundError(f"{named} does not exist; restore it from a copy, or save the state again")


def _decode(data: bytes, path: Path) -> _Index:
    """Return the content of an index of any format."""
    content = parse_json(data, path)
    version = content.get("format")
    if type(version) is not int or version not in _DECODERS:
        raise ValueError(f"{path} has format version {version!r}, but this candidly reads {FORMAT}; update candidly")
    try:
        index = _DECODERS[version](content)
        for file in (index.tensors, *index.more.values()):
            require(bool(_PLAIN.fullmatch(file.name)), "the name of a file next to it", file.name)
    except ValueError as error:
        raise ValueError(
            f"{path} is damaged or was changed ({error}); restore it from a copy, or save the state again"
        ) from None
    return index


def _decode_0_1(content: dict[str, Any]) -> _Index:
    content = {"tensors": None, "sha256": None, "more": [], "facts": None} | content
    for key, check in {"tensors": text, "sha256": text, "more": list_of(text, 0), "facts": instance(dict)}.items():
        check(content[key], repr(key))
    more = {name: _File(name, None) for name in content["more"]}
    return _Index(_File(content["tensors"], content["sha256"]), more, content["facts"])


def _decode_2(content: dict[str, Any]) -> _Index:
    if content.pop("checksum", None) != checksum(content, "content"):
        raise ValueError("its content does not match its checksum")
    file = record({"name": text, "sha256": text})
    parts = {"format": instance(int), "tensors": file, "more": mapping(file), "facts": instance(dict)}
    record(parts | ({"replaces": list_of(text, 1)} if "replaces" in content else {}))(content, "content")
    more = {name: _File(**named) for name, named in content["more"].items()}
    return _Index(_File(**content["tensors"]), more, content["facts"])


_DECODERS = {_FORMAT_0_1: _decode_0_1, FORMAT: _decode_2}


def _check_stem(stem: str, what: str = "stem") -> None:
    if not isinstance(stem, str) or not _PLAIN.fullmatch(stem):
        found = reprlib.repr(stem)
        raise ValueError(f"{what} is {found}; pass letters, digits, '_', '-' and dots, not starting with a dot")


def _copy(name: str, tensor: Tensor) -> Tensor:
    """Return a contiguous copy that shares no memory, which is all that safetensors can store."""
    if not isinstance(tensor, Tensor) or tensor.layout != torch.strided:
        raise ValueError(f"{name!r} is {type(tensor).__name__}; pass dense tensors, and everything else as facts")
    if name == "__metadata__":
        raise ValueError("a tensor is named '__metadata__', which safetensors reserves; rename it")
    return tensor.detach().to("cpu", copy=True, memory_format=torch.contiguous_format)
