r"""What the registry holds of a published dataset, and the warning that shows its terms.

A digest is ``sha256:`` or ``git-blob:`` and hexadecimal digits. The latter is sha1 of ``blob SIZE\0`` and the content:
what git stores, and for some files the only digest known.
"""

import warnings
from dataclasses import dataclass


class LicenceNotice(UserWarning):
    """Shows the terms of a dataset when it is downloaded; where the terms ask for it, whenever it is loaded."""


# Python shows a warning once per line of code. Terms are shown each time, unless the user filters them.
warnings.filterwarnings("always", category=LicenceNotice, append=True)


@dataclass(frozen=True)
class File:
    """A file as the readers want it.

    Attributes
    ----------
    name
        Its name.
    size, digest
        Of its content, uncompressed, so that compressed and plain copies check alike; None where not known.
    others
        Names under which it comes compressed, or its array in another format.
    """

    name: str
    size: int | None = None
    digest: str | None = None
    others: tuple[str, ...] = ()


@dataclass(frozen=True)
class Download:
    """What the publisher offers for download: a file, or an archive with files.

    Attributes
    ----------
    url
        Its address; the last part is its name.
    size, digest
        Of what the address gives, as published; None where not known.
    members
        The paths of the wanted files in an archive; for a plain file none.
    """

    url: str
    size: int | None
    digest: str | None
    members: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """The name of what is downloaded."""
        return self.url.rpartition("/")[2]


@dataclass(frozen=True)
class Entry:
    """A published dataset.

    Attributes
    ----------
    name
        What `candidly.data.load` calls it.
    format
        The reader it takes: `mat`, `idx`, `cifar`, `svhn`, `cifar10n` or `digits`.
    page
        Where a person gets it.
    licence, citation
        Its terms, and the work to cite.
    shape, num_classes, classes
        Of the whole dataset; class names where the publisher gives them.
    num_train
        How many rows are the publisher's training rows, where the publisher splits; they come first.
    files
        All of them are needed, in this order.
    folders
        Where to look for them below a data folder; downloads go to the first.
    downloads
        Empty where nothing can be downloaded that is read here.
    manual
        What to do then.
    pickled
        Names of the publisher's files that are pickles, which are not read: a pickle can run any code.
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
    files: tuple[File, ...] = ()
    folders: tuple[str, ...] = ()
    downloads: tuple[Download, ...] = ()
    manual: str = ""
    pickled: tuple[str, ...] = ()

    @property
    def terms(self) -> str:
        """Licence and citation, as shown to the user."""
        return f"{self.name}: licence: {self.licence}; please cite {self.citation}"
