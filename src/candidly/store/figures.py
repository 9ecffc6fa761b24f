"""Writing matplotlib figures, reproducibly: the same figure and matplotlib version give the same bytes."""

import io
import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from candidly.store.files import replace

if TYPE_CHECKING:
    from matplotlib.figure import Figure

FORMATS = (".pdf", ".png", ".svg")
# Class names are not parsed as formulas, and the user's matplotlib settings do not change the bytes.
SETTINGS: dict[Any, Any] = {
    "font.family": ["DejaVu Sans"],
    "svg.fonttype": "path",
    "svg.hashsalt": "candidly",
    "text.parse_math": False,
    "text.usetex": False,
}
_DATES: dict[str, dict[str, None]] = {".svg": {"Date": None}, ".pdf": {"CreationDate": None}, ".png": {}}


def check_format(path: str | os.PathLike[str]) -> None:
    """Raise ValueError unless the name ends in one of `FORMATS`."""
    suffix = Path(path).suffix
    if suffix.lower() not in FORMATS:
        raise ValueError(f"{path} ends in {suffix!r}; choose one of {', '.join(FORMATS)}")


def write_figure(path: str | os.PathLike[str], make: Callable[[], "Figure"]) -> None:
    """Write the figure that `make` draws, completely or not at all.

    Raises
    ------
    ValueError
        If the name does not end in one of `FORMATS`.
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
    suffix = Path(path).suffix.lower()
    data = io.BytesIO()
    with rc_context(SETTINGS):
        make().savefig(data, format=suffix[1:], dpi="figure", metadata=_DATES[suffix])
    replace(path, data.getvalue())
