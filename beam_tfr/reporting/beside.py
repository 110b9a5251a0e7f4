"""Draws records next to the sources that they were made from."""

import hashlib
from collections.abc import Iterable
from typing import NamedTuple

from beam_tfr.inspection import pictures
from beam_tfr.reporting.samples import SIDE, RecordPictures, SourceName, Thumbnail, show_text
from beam_tfr.reporting.source_files import SourceFiles
from beam_tfr.schema.errors import RejectError


class Comparison(NamedTuple):
    """A record and its source.

    Attributes:
        stored: the record.
        source: the source of the record; None if it is not available or cannot be decoded.
        note: what is wrong with the source; empty if nothing is.
        value: the value for which the record was chosen; empty if there is none.
    """

    stored: Thumbnail
    source: Thumbnail | None
    note: str
    value: str


def compare_records(
    chosen: Iterable[tuple[int, str]], records: RecordPictures, sources: SourceFiles | None
) -> list[Comparison]:
    """Draws records next to their sources.

    Args:
        chosen: numbers of records that were read, each with the value for which it was chosen.
        records: pictures of the records.
        sources: the sources of the dataset; None if they are not available.
    """
    comparisons = []
    for number, value in chosen:
        source = None
        note = ""
        if sources:
            source, note = _draw_source(sources, records.find_source(number))
        comparisons.append(Comparison(records.get(number), source, note, value))
    return comparisons


def _draw_source(sources: SourceFiles, name: SourceName) -> tuple[Thumbnail | None, str]:
    """Draws a source; also returns what is wrong with it."""
    try:
        data = sources.read(name.key)
        image = pictures.draw_source(data, SIDE)
    except RejectError as error:
        return None, f"its source cannot be read: {error.reason}"
    except OSError as error:
        return None, f"its source cannot be read: {error.strerror or 'it is missing'}"
    if image is None:
        return None, "its source is not an image"
    is_same = name.sha256 in ("", hashlib.sha256(data).hexdigest())
    note = "" if is_same else "its source has changed since the conversion"
    return Thumbnail(image, show_text(name.key), "source"), note
