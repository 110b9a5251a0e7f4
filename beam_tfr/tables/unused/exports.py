"""Finds columns from annotation programs with regions that no option reads."""

import itertools
from collections.abc import Iterator, Sequence

from beam_tfr.tables.annotations.labelbox import describe_labelbox
from beam_tfr.tables.base import list_columns
from beam_tfr.tables.box_objects import OF_PERCENT, SHAPES_OF_PERCENT
from beam_tfr.tables.content import TableContent
from beam_tfr.tables.text_rows import Delimited, JsonLines
from beam_tfr.tables.unused.suggestions import Suggestion, list_fields_of, read_first_cells

# Columns in VIA's CSV, which has a region in each row.
_VIA = frozenset({"region_shape_attributes", "region_attributes"})
_CURE = "export the regions there in COCO's format, for `table=`"


def find_regions(content: TableContent, columns: Sequence[str]) -> Suggestion | None:
    """Finds columns with regions from VIA or Label Studio."""
    regions = [*_select_regions(content, columns)]
    program = "VIA" if _has_via(regions) else "Label Studio"
    if not regions:
        return None
    message = f"no values of {list_columns(regions)}, from {program}, are stored: {_CURE}"
    return Suggestion(regions, message)


def warn_of_rows_of_regions(content: TableContent) -> Iterator[str]:
    """Yields a warning about regions from VIA or Label Studio, if each row becomes a record."""
    if not content.options.may_become_images or content.read_rows:
        return
    regions = [*_select_regions(content, content.columns)]
    if regions:
        program = "VIA" if _has_via(regions) else "Label Studio"
        yield f"{list_columns(regions)} hold regions from {program}: {_CURE}"


def find_labelbox(content: TableContent, columns: Sequence[str]) -> Suggestion | None:
    """Finds the column with the annotations in an export of Labelbox."""
    if not isinstance(content.table_format, JsonLines):
        return None
    export = describe_labelbox(content.columns, in_lines=True)
    objects = [name for name in ("projects", "Label") if name in columns]
    if not export or not objects:
        return None
    return Suggestion(objects, f"no values of {objects[0]} are stored, since the table {export}")


def _has_via(columns: Sequence[str]) -> bool:
    return {*columns} >= _VIA


def _select_regions(content: TableContent, columns: Sequence[str]) -> Iterator[str]:
    """Yields the columns and fields that hold regions, or information about regions."""
    if _has_via(columns):
        yield from (name for name in columns if name.startswith(("region_", "file_")))
        return
    yield from _select_objects_in_percent(content, columns)
    if isinstance(content.table_format, Delimited):
        cells_of = read_first_cells(content, columns)
        yield from (name for name, cells in cells_of.items() if any(map(_has_shapes, cells)))


def _select_objects_in_percent(content: TableContent, columns: Sequence[str]) -> Iterator[str]:
    """Yields the columns of objects with sides in percent, and the columns of their fields."""
    fields = itertools.chain(columns, list_fields_of(content, columns))
    percents = [name for name in fields if name.rpartition(".")[2] == OF_PERCENT]
    objects = {name.rpartition(".")[0] for name in percents}
    for name in columns:
        if name in objects or name.rpartition(".")[0] in objects:
            yield name


def _has_shapes(cell: object) -> bool:
    """Whether a cell holds, as text, shapes whose sides are in percent."""
    return isinstance(cell, str) and SHAPES_OF_PERCENT.search(cell) is not None
