"""Suggests options that name the columns of images and their classes, for messages."""

from collections.abc import Iterable, Iterator
from typing import Any

from beam_tfr.features.cells import members_of
from beam_tfr.schema.spelling import spell_option
from beam_tfr.tables.box_names import CLASSES, by_plain_name, find_name
from beam_tfr.tables.box_objects import CLASS_FIELDS, by_end, describe_class_map, find_file
from beam_tfr.tables.content import TableContent
from beam_tfr.tables.unused.suggestions import list_fields_of, read_first_cells

_MOST_FIELDS = 100  # fields of objects whose cells are examined


def suggest_roles(content: TableContent, uri_column: str = "") -> str:
    """Returns the options for reading rows as images with classes; an empty string if none fit.

    Args:
        content: the findings about the tables.
        uri_column: the column of images, if known.
    """
    uri_column = uri_column or find_file(content.files[0], content.columns)
    if not uri_column:
        return ""
    label = content.options.label_column or _find_label(content, uri_column)
    options = spell_option("uri_column", uri_column)
    return f"{options} {spell_option('label_column', label)}" if label else options


def warn_of_class_numbers(content: TableContent, labels: Iterable[Any]) -> Iterator[str]:
    """Yields a line about classes that are numbers, with names in another field, as in SageMaker.

    Args:
        content: the findings about the tables.
        labels: cells of the column with the classes.
    """
    label = content.options.label_column
    metadata = f"{label}-metadata"
    if not label or not content.options.uri_column or metadata not in content.columns:
        return
    if not all(_is_number(member) for cell in labels for member in members_of(cell)):
        return
    fields = list_fields_of(content, [metadata])
    if f"{metadata}.class-name" in fields:
        yield (
            f"classes in {label} are numbers, and their names are in {metadata}.class-name: "
            f"{spell_option('label_column', f'{metadata}.class-name')} uses the names"
        )
    elif any(name.startswith(f"{metadata}.class-map.") for name in fields):
        yield describe_class_map(content.files[0], label, f"{metadata}.class-map")


def _find_label(content: TableContent, uri_column: str) -> str:
    """Returns the column, or field of objects, whose name suggests classes, or an empty string.

    In a table from SageMaker, this is the column with a metadata column next to it.
    """
    others = [name for name in content.columns if name != uri_column]
    column = find_name(CLASSES, by_plain_name(others))
    if column and not list_fields_of(content, [column]):
        return column
    cells_of = read_first_cells(content, list_fields_of(content, others)[:_MOST_FIELDS])
    fields = [name for name, cells in cells_of.items() if _are_texts(cells)]
    field = find_name(CLASS_FIELDS, by_end(fields))
    return field or next((name for name in others if f"{name}-metadata" in others), "")


def _are_texts(cells: Iterable[Any]) -> bool:
    """Whether each cell holds a string, or a list of strings."""
    return all(isinstance(member, str) for cell in cells for member in members_of(cell))


def _is_number(member: Any) -> bool:
    return str(member).isdecimal()
