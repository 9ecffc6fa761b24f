r"""The types of the registry of published datasets, and the warning that shows a dataset's licence.

A digest is ``sha256:`` or ``git-blob:`` and hexadecimal digits. The latter is the SHA-1 of ``blob SIZE\0`` and the
content, as git computes it; for some files it is the only digest known.
"""

import warnings
from dataclasses import dataclass


class LicenceNotice(UserWarning):
    """Shows the licence of a dataset when it is downloaded and, if the licence requires it, whenever it is loaded."""


# Python shows a warning once per line of code. Show licences each time, unless the user filters them.
warnings.filterwarnings("always", category=LicenceNotice, append=True)


@dataclass(frozen=True)
class File:
    """A file as the readers expect it.

    Attributes
    ----------
    name
        Its name.
    size, digest
        Of its uncompressed content, so that compressed and plain copies pass the same check; None if unknown.
    others
        Names of compressed copies, or of copies in another format.
    """

    name: str
    size: int | None = None
    digest: str | None = None
    others: tuple[str, ...] = ()


@dataclass(frozen=True)
class Download:
    """A file or an archive that the publisher offers for download.

    Attributes
    ----------
    url
        Its address; the last part is its name.
    size, digest
        Of the download, as published; None if unknown.
    members
        The paths of the needed files in an archive; empty for a plain file.
    """

    url: str
    size: int | None
    digest: str | None
    members: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """The name of the downloaded file."""
        return self.url.rpartition("/")[2]


@dataclass(frozen=True)
class Entry:
    """A published dataset.

    Attributes
    ----------
    name
        Its name in `candidly.data.load`.
    format
        Its reader: `mat`, `idx`, `cifar`, `svhn`, `cifar10n` or `digits`.
    page
        The web page from which a person can get it.
    licence, citation
        Its licence, and the work to cite.
    shape, num_classes, classes
        Of the whole dataset; class names if the publisher gives them.
    num_train
        Number of the publisher's training rows, if the publisher fixed a split; they come first.
    bags
        Whether consecutive rows with equal candidate sets of two or more labels come from one scene or recording; each
        such stretch is a group of rows.
    files
        The files, all of which are needed, in this order.
    folders
        Where to look for them below a data folder; downloads go to the first.
    downloads
        Empty if the publisher offers no format that can be read here.
    manual
        How to get the dataset in that case.
    pickled
        Names of the publisher's files that are pickles. They are not read, because a pickle can run any code.
    """

    name: str
    format: str
    page: str
    licence: str
    citation: str
    shape: tuple[int, ...]
    num_classes: int
    classes: tuple[str, ...] = ()
    num_train: int | None = None
    bags: bool = False
    files: tuple[File, ...] = ()
    folders: tuple[str, ...] = ()
    downloads: tuple[Download, ...] = ()
    manual: str = ""
    pickled: tuple[str, ...] = ()

    @property
    def terms(self) -> str:
        """Licence and citation, as shown to the user."""
        return f"{self.name}: licence: {self.licence}; please cite {self.citation}"
