"""Distinguishes headers from rows of data, and names the columns of tables without a header."""

import itertools
import re
from collections.abc import Iterable, Iterator, Sequence

from beam_tfr.features.cells import NUMBER
from beam_tfr.schema.extensions import FORMAT_OF

SPLIT_WORDS = {"train", "training", "validate", "validation", "val", "test", "unassigned"}
IMAGE = re.compile(rf".*\.(?:{'|'.join(FORMAT_OF)})", re.IGNORECASE | re.DOTALL)
_DIGITS = re.compile("[0-9]+")
_SLASH = re.compile(r"[/\\]")
_CORNERS = ("xmin", "ymin", "xmax", "ymax")
_CORNER_AND_SIZE = ("x", "y", "w", "h")
_FEW_NUMBERS = 2  # in increasing order, these may be names
_MOST_NAMES = 20  # in messages
_MANY_NUMBERS = 10  # in decreasing order, these may be names


def find_row_as_header(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Says how to fix a table whose first line is a row of data instead of column names.

    The first line is a row of data if both the first and the second line have an image name in the
    same place, or if the first line has an image name and a number, or consists of numbers, or if
    several of its cells look like the cells below. Returns an empty string if the line is a header.

    Args:
        header: the cells of the first line.
        rows: the cells of the lines below.
    """
    pairs = zip(header, rows[0] if rows else [], strict=False)
    is_like_next = any(IMAGE.fullmatch(name) and IMAGE.fullmatch(cell) for name, cell in pairs)
    has_number = any(map(NUMBER.fullmatch, header))
    has_image = is_like_next or (has_number and any(map(IMAGE.fullmatch, header)))
    is_row = has_image or _is_row_of_numbers(header) or len(find_values(header, rows)) > 1
    if not is_row:
        return ""
    names = guess_names(header, rows)
    corners = ""
    options = ""
    if "xmin" in names:  # these names imply the options
        corners = " (with x,y,w,h for a corner and the size of a box)"
    elif "x" not in names and {"path", "class"} <= {*names}:
        options = ", and give `uri_column=path` `label_column=class`"
    return (
        f"its first line, {','.join(header)!r:.100}, is a row of data instead of column names; "
        f"write a line with names before it{corners}, such as {show_names(names)}{options}"
    )


def find_values(header: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """Finds cells of a header that look like the cells below them.

    Such cells are numbers above numbers, unless the order of the numbers suggests names, and
    strings that also occur below, that are paths above paths, or that differ only in digits from
    the cell below.

    Args:
        header: the names of the columns.
        rows: the first rows; rows equal to the header are ignored.
    """
    texts = list[str]()
    numbers = list[str]()
    whole_rows = [row for row in rows if len(row) == len(header) and row != header]
    for name, *cells in zip(header, *whole_rows, strict=True):
        values = [cell for cell in cells if cell]
        if not name or not values:
            continue
        if NUMBER.fullmatch(name):
            if all(map(NUMBER.fullmatch, values)):
                numbers.append(name)
        elif _is_like_values(name, values):
            texts.append(name)
    if len(numbers) >= _FEW_NUMBERS and _are_in_order(numbers):
        return texts
    return numbers + texts


def _is_like_values(name: str, values: Sequence[str]) -> bool:
    """Whether the name of a column looks like one of its values, which are strings."""
    if name in values or _are_alike(name, values[0]):
        return True
    return all(map(_SLASH.search, [name, *values]))


def _are_alike(text: str, other: str) -> bool:
    """Whether two strings have digits, and differ only in the digits."""
    return _DIGITS.search(text) is not None and _DIGITS.sub("0", text) == _DIGITS.sub("0", other)


def _is_row_of_numbers(cells: Sequence[str]) -> bool:
    """Whether all cells, or all but one, are numbers whose order does not suggest names."""
    numbers = [cell for cell in cells if NUMBER.fullmatch(cell)]
    return len(numbers) >= max(2, len(cells) - 1) and not _are_in_order(numbers)


def may_be_numbers(header: Sequence[str]) -> bool:
    """Whether a header may be a row of numbers, even though they increase, as in a header.

    More than two numbers are a header if they are 0, 1, 2 and so on, or if there are many numbers.
    """
    if not all(map(NUMBER.fullmatch, header)) or not 1 < len(header) < _MANY_NUMBERS:
        return False
    first = header[0]
    counted = [str(number) for number in range(int(first == "1"), len(header) + 1)]
    return len(header) == 2 or [*header] != counted[: len(header)]


def _are_in_order(numbers: Sequence[str]) -> bool:
    """Whether numbers increase, like pandas's 0, 1, 2 or wavelengths, or many numbers decrease."""
    pairs = [*itertools.pairwise(map(float, numbers))]
    if all(number < following for number, following in pairs):
        return True
    return len(numbers) >= _MANY_NUMBERS and all(number > other for number, other in pairs)


def show_names(names: Sequence[str]) -> str:
    """Returns an example of a header for messages, cut if it has many names."""
    return ",".join([*names[:_MOST_NAMES], *["…"] * (len(names) > _MOST_NAMES)])


def guess_names(cells: Sequence[str], rows: Sequence[Sequence[str]] = ()) -> list[str]:
    """Suggests column names for the cells of a row.

    Args:
        cells: the cells.
        rows: the next rows.
    """
    if any(map(IMAGE.fullmatch, cells)):
        return [*_name_beside_image(cells, rows)]
    if len(cells) == 2 and not all(map(NUMBER.fullmatch, cells)):
        return _name_two(cells, rows)
    return [*_name_values(cells, rows)]


def _name_two(cells: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """Returns names for two cells: a class, which other rows may share, and what has this class."""
    first, _ = cells
    if any(first in row[:1] for row in rows):
        return ["class", "name"]
    return ["path" if _SLASH.search(first) else "name", "class"]


def _name_values(cells: Sequence[str], rows: Sequence[Sequence[str]]) -> Iterator[str]:
    """Yields column names for a row without the name of an image.

    A string may be a class, unless it is a path, or differs only in digits from the cell below.
    """
    below = rows[0] if rows else []
    classes = iter(("class",))
    paths = iter(("path",))
    names = iter(("name",))
    pairs = itertools.zip_longest(cells, below[: len(cells)], fillvalue="")
    for number, (cell, next_cell) in enumerate(pairs, 1):
        unknown = f"column{number}"
        if NUMBER.fullmatch(cell):
            yield unknown
        elif _SLASH.search(cell):
            yield next(paths, unknown)
        elif _are_alike(cell, next_cell):
            yield next(names, unknown)
        else:
            yield next(classes, unknown)


def _name_beside_image(row: Sequence[str], rows: Sequence[Sequence[str]]) -> Iterator[str]:
    """Yields column names for a row with the name of an image, given the next rows."""
    names = iter(_name_numbers(row, rows))
    others = iter(("class",))
    paths = iter(("path",))
    for number, cell in enumerate(row, 1):
        unknown = f"column{number}"
        if not cell:
            yield ""
        elif cell.lower() in SPLIT_WORDS:
            yield "set"
        elif NUMBER.fullmatch(cell):
            yield next(names, unknown)
        elif IMAGE.fullmatch(cell):
            yield next(paths, unknown)
        else:
            yield next(others, unknown)


def _name_numbers(row: Sequence[str], rows: Sequence[Sequence[str]]) -> Sequence[str]:
    """Returns names for the numbers in a row; the fifth number is a class if no string may be one.

    Args:
        row: the cells of the row.
        rows: the next rows.
    """
    columns = [column for column, cell in enumerate(row) if NUMBER.fullmatch(cell)]
    has_class = any(map(_may_be_class, row))
    if len(columns) == 1 and not has_class:
        return ["class"]
    whole_rows = [row, *(other for other in rows if len(other) == len(row))]
    sides = _name_sides([[other[column] for column in columns[:4]] for other in whole_rows])
    if not sides:
        return []
    if len(columns) == 5 and not has_class:
        return [*sides, "class"]
    return [*sides, "width", "height"]


def _name_sides(boxes: Iterable[Sequence[str]]) -> tuple[str, ...]:
    """Returns names for the four sides of boxes, or an empty tuple if these are not boxes."""
    numbers = [[*map(float, box)] for box in boxes if all(map(NUMBER.fullmatch, box))]
    if any(len(box) < len(_CORNERS) for box in numbers):
        return ()
    if _are_corners(numbers):
        return _CORNERS
    if all(width > 0 and height > 0 for _, _, width, height in numbers):
        return _CORNER_AND_SIZE
    return ()


def _are_corners(boxes: Sequence[Sequence[float]]) -> bool:
    """Whether no box ends before it begins, and most boxes have an area."""
    if any(left > right or top > bottom for left, top, right, bottom in boxes):
        return False
    with_area = [left < right and top < bottom for left, top, right, bottom in boxes]
    return 2 * sum(with_area) > len(boxes)


def _may_be_class(cell: str) -> bool:
    """Whether a cell is a string that names neither an image nor a split."""
    if NUMBER.fullmatch(cell) or IMAGE.fullmatch(cell):
        return False
    return bool(cell) and cell.lower() not in SPLIT_WORDS
