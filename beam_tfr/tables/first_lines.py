"""Recognizes tables whose header is below a title or has several lines.

My labels,,             scorer,Ann,Ann,Ann,Ann
,,                      bodyparts,nose,nose,tail,tail
image,class,notes       coords,x,y,x,y
"""

from collections.abc import Sequence

from beam_tfr.features.cells import NUMBER
from beam_tfr.tables.headers import IMAGE

_WITH_NEWLINES = r"tr '\r' '\n' <"  # tools do not divide a file at carriage returns
_MOST_ABOVE = 10  # lines above a header
_Rows = Sequence[Sequence[str]]


def describe_first_lines(rows: _Rows, num_skipped: int, line_end: str) -> str:
    """Says what to do if the first line does not name the columns, or returns an empty string.

    Args:
        rows: the cells of the first lines; an empty list for a blank line.
        num_skipped: the number of lines above these.
        line_end: the characters that end a line.
    """
    if not rows:
        return ""
    starts = [row[0] if row else "" for row in rows]
    if starts[:3] == ["scorer", "bodyparts", "coords"]:
        return _describe_deeplabcut(rows[0], has_individuals=False)
    if starts[:4] == ["scorer", "individuals", "bodyparts", "coords"]:
        return _describe_deeplabcut(rows[0], has_individuals=True)
    place = _find_header_below_title(rows)
    if not place:
        return ""
    header = ",".join(rows[place])
    rest = f"tail -n +{num_skipped + place + 1}"
    command = f"{rest} OLD > NEW" if line_end == "\n" else f"{_WITH_NEWLINES} OLD | {rest} > NEW"
    return (
        f"its first line, {','.join(rows[0])!r:.60}, is a title instead of column names; remove "
        f"the lines above {header!r:.60}: {command}"
    )


def _describe_deeplabcut(scorers: Sequence[str], *, has_individuals: bool) -> str:
    """Returns the message about labels from DeepLabCut.

    Args:
        scorers: the cells of the first line.
        has_individuals: whether the second line names the animals.
    """
    num_levels = 4 if has_individuals else 3
    header = [*range(num_levels)]
    num_index = next((place for place, cell in enumerate(scorers) if place and cell), 1)
    index = [*range(num_index)] if num_index > 1 else 0
    paths = "['/'.join(path) for path in table.index]" if num_index > 1 else "table.index"
    parts = "[table.to_numpy().reshape(len(table), -1, 2)]"
    if has_individuals:
        parts = (
            "[table.xs(name, axis=1, level=1).to_numpy().reshape(len(table), -1, 2) for name in "
            "dict.fromkeys(table.columns.get_level_values(1))]"
        )
    return (
        f"has {num_levels} lines of names, as in DeepLabCut: with NumPy and pandas, table = "
        f"pandas.read_csv(FILE, header={header}, index_col={index}); parts = {parts}; animals = "
        "[[xy for xy in row if not numpy.isnan(xy).all()] for row in zip(*parts)]; "
        f"pandas.DataFrame({{'path': {paths}, 'box': [[[*numpy.nanmin(xy, 0) - 1, "
        "*numpy.nanmax(xy, 0) + 1] for xy in row] for row in animals], 'joint': [[[number for x, y "
        "in xy for number in ((x, y, 2) if x == x else (0, 0, 0))] for xy in row] for row in "
        "animals]}).to_json('table.jsonl', orient='records', lines=True) writes a `table=` with "
        "keypoints and the boxes around them, for `uri_column=path`, "
        "`feature_columns='box:bbox[xyxy],joint:points[xyv]'` and `image_root=` with the folder "
        "that contains labeled-data"
    )


def _find_header_below_title(rows: _Rows) -> int:
    """Returns the number of the header's line, from 0; 0 if the first line is not a title.

    A title is the only text on its line. The header has several different names, and a line below
    it has a number or the name of an image.
    """
    if not rows:
        return 0
    title, *others = [_list_filled(row) for row in rows[: _MOST_ABOVE + 2]]
    if len(title) != 1 or not rows[0][0] or _have_values(title):
        return 0
    for place, names in enumerate(others, 1):
        if len(names) < 2:
            continue
        has_rows = any(_have_values(row) for row in others[place:])
        is_below = len(rows[0]) in (1, len(rows[place]))
        is_header = len({*names}) == len(names) and not _have_values(names)
        return place if is_below and is_header and has_rows else 0
    return 0


def _list_filled(row: Sequence[str]) -> list[str]:
    return [cell for cell in row if cell.strip()]


def _have_values(cells: Sequence[str]) -> bool:
    """Whether a cell is a number or the name of an image."""
    return any(NUMBER.fullmatch(cell) or IMAGE.fullmatch(cell) for cell in cells)
