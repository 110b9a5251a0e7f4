"""Draws clusters of copies as rows of thumbnails."""

import itertools
from typing import Any

from PIL import Image as PillowImage

from beam_tfr.copies.search import Duplicates
from beam_tfr.dataset.lookup import RecordLookup
from beam_tfr.dataset.manifest import Manifest
from beam_tfr.inspection.records import InspectedRecord
from beam_tfr.inspection.sheets import COLUMNS, draw_records

MOST_ROWS = 20  # clusters
_MOST_COLUMNS = COLUMNS  # images of a cluster


def draw_copies(copies: Duplicates) -> PillowImage.Image:
    """A row of thumbnails for each of the first clusters, with splits and classes.

    Raises:
        DataError: a record is damaged, or the dataset was replaced.
    """
    clusters = itertools.islice(copies.clusters(), MOST_ROWS)
    rows = [cluster["images"][:_MOST_COLUMNS] for cluster in clusters]
    numbers = [image["record"] for row in rows for image in row]
    records = iter(_read_records(copies.manifest, numbers) if numbers else [])
    drawn = []
    for row in rows:
        drawn.append([(next(records), _caption(image)) for image in row])
    return draw_records(drawn)


def _caption(image: dict[str, Any]) -> str:
    texts = [image["split"], image["class"] or ""]
    return " ".join(texts).strip()


def _read_records(dataset: Manifest, numbers: list[int]) -> list[InspectedRecord]:
    """Records by their numbers in the order of the manifest."""
    lookup = RecordLookup.whole(dataset)
    records = list[InspectedRecord]()
    for number, data in zip(numbers, lookup.read_records(numbers), strict=True):
        part, _ = lookup.locate(number)
        records.append(InspectedRecord(number, part.file, 0, data))
    return records
