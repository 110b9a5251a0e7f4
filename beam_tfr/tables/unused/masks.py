"""Finds columns that may hold masks, or images in addition to those that are converted."""

import re
from collections.abc import Sequence
from typing import Any

from beam_tfr import storage
from beam_tfr.features.cells import is_missing
from beam_tfr.schema.feature_names import MASK
from beam_tfr.schema.spelling import quote_word, spell_option
from beam_tfr.tables.base import list_columns
from beam_tfr.tables.content import TableContent
from beam_tfr.tables.samples import EXTENSIONS, Samples
from beam_tfr.tables.unused.suggestions import Suggestion, read_first_cells

# Names of columns with run lengths of masks, as in Kaggle competitions.
_RUN_LENGTHS = re.compile(r"(?is)(.*[_. ])?(encoded_?pixels|rles?|run_?lengths?)([_. ].*)?")
_RUNS = re.compile(r"\s*+(?:[0-9]++\s++[0-9]++(?:\s++|$))++")  # 100 5 200 3; in linear time
_PNG_PATH = re.compile(r"(?i)(?![a-z]+://)[^\n]{1,4096}\.png\s*")
_MOST_COLUMNS = 100  # whose first cells are examined
# Names of columns with the paths of masks.
_MASKS = re.compile(
    r"(?i)(.*[_. ])?(masks?|seg|segmentation)([_. ]?(files?|images?|paths?|names?))?"
)


def find_run_lengths(content: TableContent, columns: Sequence[str]) -> Suggestion | None:
    """Finds columns whose names or cells suggest masks as run lengths."""
    masks = [*filter(_RUN_LENGTHS.fullmatch, columns)]
    others = [*filter(_MASKS.fullmatch, columns)]
    if others:
        cells_of = read_first_cells(content, others)
        masks += [name for name in others if _are_runs(cells_of[name])]
    if not masks:
        return None
    message = (
        f"no values of {list_columns(masks)} are stored: if they are run lengths of masks, write "
        "the mask of each image as a PNG, whose path is in a column: "
        "`feature_columns=mask:mask` stores it"
    )
    return Suggestion(masks, message)


def _are_runs(cells: Sequence[Any]) -> bool:
    """Whether cells hold pairs of numbers; missing cells are ignored if there are others."""
    texts = [cell for cell in cells if not is_missing(cell)]
    return bool(texts) and all(isinstance(text, str) and _RUNS.fullmatch(text) for text in texts)


def find_masks(_: TableContent, columns: Sequence[str]) -> Suggestion | None:
    """Finds columns that may hold the paths of masks."""
    masks = [*filter(_MASKS.fullmatch, columns)]
    if not masks:
        return None
    message = (
        f"no values of {list_columns(masks)} are stored: if they are paths of masks, "
        f"{spell_option('feature_columns', f'{masks[0]}:mask')} stores the masks"
    )
    return Suggestion(masks, message)


def find_more_images(content: TableContent, columns: Sequence[str]) -> Suggestion | None:
    """Finds columns of images, or of paths of PNGs, in addition to the image column.

    Examples are the masks of segmentation datasets on the Hugging Face Hub.
    """
    if content.read_rows or isinstance(content.table_format, Samples):
        return None
    cells_of = read_first_cells(content, columns[:_MOST_COLUMNS])
    images = [name for name, cells in cells_of.items() if _are_images(cells)]
    if not images:
        return None
    pair = quote_word(f"{images[0]}:pair", "NAME:pair")
    message = (
        f"no values of {list_columns(images)}, which hold or name images, are stored: "
        f"{spell_option('feature_columns', f'{images[0]}:mask')} stores masks, and {pair} the "
        "other image of a pair; masks must be PNGs, and the images of a pair gray PNGs"
    )
    return Suggestion(images, message)


def _are_images(cells: Sequence[Any]) -> bool:
    """Whether cells hold images or paths of PNGs; missing cells are ignored if there are others.

    Web addresses do not count, because they cannot be read.
    """
    present = [cell for cell in cells if not is_missing(cell)]
    return bool(present) and all(map(_is_image, present))


def _is_image(cell: Any) -> bool:
    if isinstance(cell, str):
        return _PNG_PATH.fullmatch(cell) is not None
    return isinstance(cell, storage.Entry)


def find_stored_masks(content: TableContent, columns: Sequence[str]) -> Suggestion | None:
    """Finds the column with masks in TFRecords, named as in DeepLab's datasets or in ours."""
    if MASK not in columns:
        return None
    options = content.options
    roles = spell_option("uri_column", options.uri_column)
    if options.label_column:
        roles += f" {spell_option('label_column', options.label_column)}"
    message = (
        f"no values of {MASK} are stored: {roles} "
        f"{spell_option('feature_columns', f'{MASK}:mask')} stores the masks"
    )
    return Suggestion([MASK], message)


def find_second_images(content: TableContent, _: Sequence[str]) -> Suggestion | None:
    """Finds images next to the images to convert, in WebDataset samples.

    A column with just another image extension, such as png next to jpg, may stand for the main
    column: such a column holds additional images only if some sample has a value in both columns.
    """
    second = _list_second_images(content)
    if not second:
        return None
    main = content.options.uri_column
    start = f"no values of {list_columns(second)}, images next to {main} in its samples, are stored"
    pngs = [name for name in second if name.endswith("png")]
    if not pngs:
        return Suggestion(second, f"{start}: masks and images of pairs must be PNGs")
    cure = spell_option("uri_column", main)
    if content.options.label_column:
        cure += f" {spell_option('label_column', content.options.label_column)}"
    cure += f" {spell_option('feature_columns', f'{pngs[0]}:mask')}"
    message = f"{start}: {cure} stores {pngs[0]} as a mask, {pngs[0]}:pair as an image of a pair"
    return Suggestion(second, message)


def _list_second_images(content: TableContent) -> list[str]:
    """Lists the columns without a role that have images next to the images to convert."""
    if not isinstance(content.table_format, Samples) or content.read_rows:
        return []
    main = content.options.uri_column
    others = [name for name in content.columns if name not in content.options.roles]
    images = [name for name in others if name.rpartition(".")[2] in EXTENSIONS]
    if not images:
        return []
    cells_of = read_first_cells(content, [main, *images])
    return [name for name in images if _are_together(cells_of[main], cells_of[name])]


def _are_together(first: Sequence[Any], second: Sequence[Any]) -> bool:
    """Whether any row has a value in both columns."""
    rows = zip(first, second, strict=True)
    return any(cell is not None and other is not None for cell, other in rows)
