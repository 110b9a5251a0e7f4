"""Warns of columns in the first table that are not stored."""

from collections.abc import Callable, Iterator, Sequence

from beam_tfr.schema.feature_names import (
    CHANNELS,
    COLORSPACE,
    FORMAT,
    HEIGHT,
    LABEL,
    OBJECT_LABEL,
    OBJECT_TEXT,
    SHA256,
    TEXT,
    WIDTH,
)
from beam_tfr.tables.base import list_columns
from beam_tfr.tables.content import TableContent
from beam_tfr.tables.samples import EXTENSIONS, Samples
from beam_tfr.tables.split_columns import is_named_like_splits
from beam_tfr.tables.tfrecord_rows import TfRecord
from beam_tfr.tables.unused.boxes import (
    find_objects,
    find_points,
    find_polygons,
    find_shapes_as_text,
    find_sides,
)
from beam_tfr.tables.unused.class_flags import find_class_flags
from beam_tfr.tables.unused.exports import find_labelbox, find_regions
from beam_tfr.tables.unused.masks import (
    find_masks,
    find_more_images,
    find_run_lengths,
    find_second_images,
    find_stored_masks,
)
from beam_tfr.tables.unused.pixels import find_pixels
from beam_tfr.tables.unused.suggestions import Suggestion, list_fields_of

# Pairs of columns with the same information, as a number and as text.
_SAME_COLUMNS = ({TEXT, LABEL}, {OBJECT_TEXT, OBJECT_LABEL})
# TFRecord columns that are computed from the image again.
MADE_ANEW = {HEIGHT, WIDTH, CHANNELS, COLORSPACE, FORMAT, SHA256}

_FINDERS: tuple[Callable[[TableContent, Sequence[str]], Suggestion | None], ...] = (
    find_second_images,
    find_stored_masks,
    find_pixels,
    find_regions,
    find_labelbox,
    find_shapes_as_text,
    find_sides,
    find_polygons,
    find_points,
    find_run_lengths,
    find_more_images,
    find_masks,
    find_objects,
    find_class_flags,
)


def warn_of_unused_columns(content: TableContent) -> Iterator[str]:
    """Yields warnings about columns that are not stored, if no option chose features."""
    options = content.options
    if not options.uri_column or options.feature_columns is not None:
        return
    others = list_unused(content)
    for find in _FINDERS:
        suggestion = find(content, others)
        if suggestion:
            yield suggestion.message
            told = {*suggestion.columns}
            others = [name for name in others if name not in told]
    if not others:
        return
    cure = "`feature_columns=` names feature columns"
    if not options.label_column:
        cure = f"`label_column=` names the class column, {cure}"
    yield f"no values of the columns {list_columns(others)} are stored: {cure}"


def list_unused(content: TableContent) -> list[str]:
    """Lists the columns without a role, except columns that repeat a column with a role."""
    roles = {*content.options.roles}
    used = roles | _list_told_by_others(content)
    # A role may be a field, such as class.name: its column is used, but not its other fields.
    columns_of_fields = {name.partition(".")[0] for name in roles.difference(content.columns)}
    candidates = [name for name in content.columns if name and name not in columns_of_fields]
    candidates += list_fields_of(content, columns_of_fields)
    return [name for name in candidates if name not in used]


def _list_told_by_others(content: TableContent) -> set[str]:
    """Returns the columns that need no role, because other columns have the same information."""
    roles = {*content.options.roles}
    others = set[str]()
    if isinstance(content.table_format, TfRecord):
        others |= MADE_ANEW
    for group in _SAME_COLUMNS:
        if roles & group:
            others |= group
    if isinstance(content.table_format, Samples) and roles & {*EXTENSIONS}:
        others |= {*EXTENSIONS}
    if content.options.shares:  # shares replace the splits of a column
        others |= {*filter(is_named_like_splits, content.columns)}
    return others
