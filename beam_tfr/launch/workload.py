"""Estimates whether a conversion is large enough for worker processes, before listing its input."""

from collections.abc import Iterator

from beam_tfr import storage
from beam_tfr.options import ConvertOptions
from beam_tfr.options.implied import may_hold_images
from beam_tfr.sources import Input
from beam_tfr.tables.rows import Tables

MOST_TABLES = 100  # tables whose sizes are read
# Sizes of a small image in an archive or a table, and of a table row without images.
_IMAGE_BYTES = 30_000
_ROW_BYTES = 300
_PATH_BYTES = 80  # in a list of patterns


def has_many_images(source: Input, options: ConvertOptions, number: int) -> bool:
    """Whether a conversion has at least this many images, judging by a quick look.

    Images of a dataset do not count, since most are copied.

    Raises:
        InputNotFoundError: a pattern matches nothing.
        UsageError: a pattern cannot be listed.
    """
    if options.limit is not None and options.limit < number:
        return False
    if isinstance(source.origin, Tables):
        return _estimate_rows(source.origin) >= number
    total = _estimate_list(options.input_list)
    for images in _count_images(source):
        total += images
        if total >= number:
            return True
    return False


def _count_images(source: Input) -> Iterator[float]:
    """Yields the approximate number of images in each listed file of an input."""
    for listed in source.list_first():
        if isinstance(listed, storage.Entry):
            yield 1
        elif listed.archive:
            yield storage.Entry(*listed.archive).size_bytes / _IMAGE_BYTES
        else:  # the part of a pattern on gs:// that is not listed
            yield float("inf")


def _estimate_list(path: str | None) -> float:
    """Estimates the number of patterns in a file from its size; 0 if there is no file."""
    entry = storage.find(path) if path else None
    return entry.size_bytes / _PATH_BYTES if entry else 0


def _estimate_rows(tables: Tables) -> float:
    """Estimates the number of table rows from the sizes of tables."""
    if tables.one_row_each:
        return len(tables.files)
    looked_at = tables.files[:MOST_TABLES]
    rows = sum(map(_estimate_rows_of, looked_at))
    return rows * len(tables.files) / len(looked_at)


def _estimate_rows_of(path: str) -> float:
    entry = storage.find(path)
    if entry is None:
        return 0
    return entry.size_bytes / (_IMAGE_BYTES if may_hold_images(path) else _ROW_BYTES)
