"""Where datasets are stored on this machine."""

import os
from pathlib import Path

from candidly.data.published.catalogue import Entry, File

Root = str | os.PathLike[str] | None


def find(entry: Entry, root: Root) -> tuple[Path, ...] | None:
    """Return the paths of a dataset's files, in order, from the first folder that has all of them."""
    for place in _places(entry, root):
        paths = [_path(place, file) for file in entry.files]
        found = tuple(path for path in paths if path is not None)
        if len(found) == len(paths):
            return found
    return None


def not_found(entry: Entry, root: Root) -> FileNotFoundError:
    """Return an error that says where a dataset was looked for and where to get it."""
    places = _places(entry, root)
    # For each folder, the first file that it lacks.
    missing = [next(place / file.name for file in entry.files if _path(place, file) is None) for place in places]
    looked_at = "\n".join(f"  {path}" for path in missing)
    if len(entry.files) == 1:
        what = entry.files[0].name
        it = "it"
    else:
        what = f"{entry.name} ({len(entry.files)} files)"
        it = "them"
    pickles = [place / name for place in places for name in entry.pickled if (place / name).is_file()]
    note = f"{pickles[0]} is a pickle, which can run any code when it is read; it is not read here. " if pickles else ""
    # Name the archive itself, because its page offers others too.
    source = entry.downloads[0].url if any(download.members for download in entry.downloads) else entry.page
    return FileNotFoundError(
        f"{what} was not found; looked at\n{looked_at}\n"
        f"{note}{entry.manual or f'Get {it} from {source}'} (see its licence: {entry.licence}) and put {it} in one of "
        "these folders, or name the folder with `root` or in the environment variable CANDIDLY_DATA"
        f"{'; or pass download=True' if entry.downloads else ''}."
    )


def target(entry: Entry, root: Root) -> Path:
    """Return the folder for the download of a dataset, in `root` or else in the user's cache."""
    return (Path(root).expanduser() if root else _cache()) / entry.folders[0]


def _cache() -> Path:
    return (Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache") / "candidly").expanduser()


def _places(entry: Entry, root: Root) -> list[Path]:
    bases = [Path(base).expanduser() for base in (root, os.environ.get("CANDIDLY_DATA"), _cache()) if base]
    # The dataset's folder comes first: the base folder may hold another dataset with the same file names.
    return [place for base in bases for place in (*(base / folder for folder in entry.folders), base)]


def _path(place: Path, file: File) -> Path | None:
    return next((place / name for name in (file.name, *file.others) if (place / name).is_file()), None)
