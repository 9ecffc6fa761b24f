"""Figures of matplotlib as files: the same figure gives the same bytes, with the same version of matplotlib."""

import io
import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from candidly.store.files import replace

if TYPE_CHECKING:
    from matplotlib.figure import Figure

FORMATS = (".pdf", ".png", ".svg")
# Names are never taken for formulas, and whoever draws gets the same bytes.
SETTINGS: dict[Any, Any] = {
    "font.family": ["DejaVu Sans"],
    "svg.fonttype": "path",
    "svg.hashsalt": "candidly",
    "text.parse_math": False,
    "text.usetex": False,
}
_DATES: dict[str, dict[str, None]] = {".svg": {"Date": None}, ".pdf": {"CreationDate": None}, ".png": {}}


def check_format(path: str | os.PathLike[str]) -> None:
    """Refuse a name that ends in none of `FORMATS`."""
    suffix = Path(path).suffix
    if suffix.lower() not in FORMATS:
        raise ValueError(f"{path} ends in {suffix!r}; choose one of {', '.join(FORMATS)}")


def write_figure(path: str | os.PathLike[str], make: Callable[[], "Figure"]) -> None:
    """Write the figure that `make` draws, whole or not at all.

    Raises
    ------
    ValueError
        If the name ends in none of `FORMATS`.
    ModuleNotFoundError
        If matplotlib is not installed.
    """
    check_format(path)
    try:
        from matplotlib import rc_context
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(
            "plots need matplotlib, which is not installed; run `pip install 'candidly[report]'`"
        ) from error
    suffix, data = Path(path).suffix.lower(), io.BytesIO()
    with rc_context(SETTINGS):
        make().savefig(data, format=suffix[1:], dpi="figure", metadata=_DATES[suffix])
    replace(path, data.getvalue())
