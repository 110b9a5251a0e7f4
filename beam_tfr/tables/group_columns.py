"""Warns if random splits may separate rows that seem to form groups, such as those of a patient."""

from collections.abc import Iterator, Sequence

from beam_tfr.features.cells import is_missing
from beam_tfr.layouts.group_names import (
    PATTERN,
    find_groups,
    find_largest_group,
    is_named_like_groups,
)
from beam_tfr.schema.spelling import spell_option
from beam_tfr.tables.content import TableContent
from beam_tfr.tables.unused.suggestions import read_first_cells


def warn_of_groups(content: TableContent, images: Sequence[str]) -> Iterator[str]:
    """Yields a warning about groups in columns or image names, if splits are random.

    Args:
        content: the findings about the tables.
        images: paths of the first images.
    """
    options = content.options
    if not options.shares or options.group_column or content.read_rows:
        return
    roles = {*options.roles}
    columns = [name for name in content.columns if name and name not in roles]
    likely = [name for name in columns if is_named_like_groups(name)]
    warning = _describe_columns(content, likely) or _describe_names(content, images)
    yield from filter(None, [warning])


def _describe_columns(content: TableContent, columns: Sequence[str]) -> str:
    """Describes the column with the fewest groups, or returns an empty string."""
    numbers = dict[str, int]()
    descriptions = dict[str, str]()
    for column, cells in read_first_cells(content, columns).items():
        values = [str(cell) for cell in cells if not is_missing(cell)]
        value, number = find_largest_group(values)
        if number:
            numbers[column] = len({*values})
            descriptions[column] = (
                f"{value!r:.100} is in {number:,} of the first {len(cells):,} rows"
            )
    if not numbers:
        return ""
    column = min(numbers, key=lambda name: numbers[name])
    return (
        f"column {column!r} seems to name groups: {descriptions[column]}, and random splits may "
        f"separate these rows; {spell_option('group_column', column)} keeps each group in one split"
    )


def _describe_names(content: TableContent, images: Sequence[str]) -> str:
    """Describes groups in image names; returns an empty string if there are none."""
    groups = find_groups(images)
    group, number = find_largest_group(groups.values())
    if not number:
        return ""
    column = content.options.uri_column
    return (
        f"names of images in column {column!r} seem to contain groups: {number:,} of the first "
        f"{len(images):,} contain {group}, and random splits may separate these; to keep each "
        "group in one split, write groups into a column and name it in `group_column=`; with "
        "pandas: "
        f'table["group"] = table[{column!r}].str.extract("{PATTERN}")'
    )
