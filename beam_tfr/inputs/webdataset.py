"""Recognizes WebDataset tars among inputs, whose class files would not be read."""

import contextlib
import io
import itertools
import re
from collections.abc import Iterator, Sequence

from beam_tfr import storage
from beam_tfr.inputs import archives
from beam_tfr.inputs.listing import PatternPart, list_parts, order_parts
from beam_tfr.inputs.patterns import ARCHIVE
from beam_tfr.schema.errors import UsageError
from beam_tfr.schema.extensions import has_image_name
from beam_tfr.schema.spelling import spell_option

_CLASS = ".cls"
_OTHERS = (".json", ".txt")
_SHARD = re.compile(r"(?i)[/_.-][0-9]+\.tar$")
_MOST_MEMBERS = 100  # read to see what a tar holds
_MOST_NAMES = 1_000  # listed for a pattern on gs://, with one request


def check_webdataset(patterns: Sequence[str]) -> None:
    """Checks that no tar of an input holds labels of its images in separate files.

    The default layout would use the name of the tar, which is the number of a shard, as the class.

    Args:
        patterns: patterns of images and archives.

    Raises:
        UsageError: a tar holds such files.
    """
    tars = [pattern for pattern in patterns if ARCHIVE.search(pattern)]
    file = _find_tar(tars)
    if file is None:
        return
    name = _find_label(file)
    if name:
        raise UsageError(
            f"{file.path} has files with data about each image, such as {name}, as in WebDataset: "
            f"read them with {spell_option('table', *tars)}, or specify a `layout=`, such as "
            "'{label}/*' if the names of the archives are the classes",
            option="input",
        )


def _find_tar(patterns: Sequence[str]) -> storage.Entry | None:
    """Returns the first tar that matches the patterns; None if there is none."""
    with contextlib.suppress(UsageError):  # the listing raises it again
        for batch in list_parts(order_parts(patterns, ()), limit=_MOST_NAMES):
            parts = [part for part in batch if isinstance(part, PatternPart) and part.archive]
            files = [storage.Entry(*part.archive) for part in parts]
            tars = [file for file in files if file.path.lower().endswith(".tar")]
            if tars:
                return min(tars)
    return None


def _find_label(file: storage.Entry) -> str:
    """Returns the name of a label file in a tar, or an empty string if there is none.

    Class files always count; JSON and caption files count if the name of the tar is the number of a
    shard.
    """
    endings = (_CLASS, *_OTHERS) if _SHARD.search(file.path) else (_CLASS,)
    names = set[str]()
    with contextlib.suppress(OSError, *archives.ERRORS):  # the listing raises it again
        names.update(_read_names(file))
    stems = {_stem_of(name) for name in names if has_image_name(name)}
    labels = [name for name in names if name.lower().endswith(endings) and _stem_of(name) in stems]
    return min(labels, default="")


def _read_names(file: storage.Entry) -> Iterator[str]:
    """Yields the names of the first files in a tar."""
    with io.BufferedReader(archives.RangeReader(file)) as opened:
        for name, _ in itertools.islice(archives.list_members(file, opened), _MOST_MEMBERS):
            yield name


def _stem_of(name: str) -> str:
    """Returns the path of a file up to the first dot of its name."""
    folder, slash, base = name.rpartition("/")
    return folder + slash + base.partition(".")[0]
