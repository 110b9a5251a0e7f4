"""Columns that may hold masks."""

import re
from collections.abc import Sequence

from beam_tfr.tables.base import list_columns
from beam_tfr.tables.content import TableContent
from beam_tfr.tables.unused.suggestions import Suggestion

# Names of columns with masks as run lengths, as in competitions of Kaggle.
_RUN_LENGTHS = re.compile(r"(?i)(.*[_. ])?(encoded_?pixels|rles?|run_?lengths?)([_. ].*)?")
# Names of columns with the paths of masks.
_MASKS = re.compile(
    r"(?i)(.*[_. ])?(masks?|seg|segmentation)([_. ]?(files?|images?|paths?|names?))?"
)


def find_run_lengths(_: TableContent, columns: Sequence[str]) -> Suggestion | None:
    """Columns that may hold masks as run lengths."""
    masks = [*filter(_RUN_LENGTHS.fullmatch, columns)]
    if not masks:
        return None
    message = (
        f"nothing is stored of {list_columns(masks)}: if they are run lengths of masks, write "
        "the mask of each image as a PNG, whose path is in a column: "
        "`feature_columns=mask:mask` stores it"
    )
    return Suggestion(masks, message)


def find_masks(_: TableContent, columns: Sequence[str]) -> Suggestion | None:
    """Columns that may hold the paths of masks."""
    masks = [*filter(_MASKS.fullmatch, columns)]
    if not masks:
        return None
    message = (
        f"nothing is stored of {list_columns(masks)}: if they are the paths of masks, "
        f"`feature_columns={masks[0]}:mask` stores these"
    )
    return Suggestion(masks, message)
