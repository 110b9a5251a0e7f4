"""Draws clusters of copies as rows of thumbnails."""

import itertools
from typing import Any

from PIL import Image as PillowImage

from beam_tfr.copies.search import Duplicates
from beam_tfr.dataset.lookup import RecordLookup
from beam_tfr.inspection.records import read_records
from beam_tfr.inspection.sheets import COLUMNS, draw_records

MOST_ROWS = 20  # clusters
_MOST_COLUMNS = COLUMNS  # images shown per cluster


def draw_copies(copies: Duplicates) -> PillowImage.Image:
    """Draws a row of thumbnails for each of the first clusters, with splits and classes.

    Raises:
        DataError: a record is damaged, or the dataset was replaced.
    """
    clusters = itertools.islice(copies.clusters(), MOST_ROWS)
    rows = [cluster["images"][:_MOST_COLUMNS] for cluster in clusters]
    numbers = [image["record"] for row in rows for image in row]
    records = read_records(RecordLookup.whole(copies.manifest), numbers)
    drawn = []
    for row in rows:
        drawn.append([(next(records), _caption(image)) for image in row])
    return draw_records(drawn)


def _caption(image: dict[str, Any]) -> str:
    texts = [image["split"], image["class"] or ""]
    return " ".join(texts).strip()
