"""Recognizes, by their first lines, text files about images that no option reads."""

import os
import re
from collections.abc import Callable, Sequence

from beam_tfr.schema.extensions import FORMAT_OF
from beam_tfr.schema.spelling import spell_option

FIRST_LINES = 10  # lines of a text file to look at
_MOST_CELLS = 50  # in a row
_CELL_SEPARATOR = re.compile(rb"[ \t]*[,;\t ][ \t]*")
# A separator of values, as pandas spells it -> its pattern.
_SEPARATORS = {
    "','": re.compile(b","),
    "';'": re.compile(b";"),
    r"'\t'": re.compile(b"\t"),
    r"r'\s+'": re.compile(rb"\s+"),
}
_IMAGE = rf"[^\s,;][^\n,;]{{0,255}}\.(?i:{'|'.join(FORMAT_OF)})"
_WORD_WITH_IMAGE = rf"[^\s,;]{{1,255}}\.(?i:{'|'.join(FORMAT_OF)})"
_PLAIN_NUMBER = re.compile(rb"-?[0-9]{1,9}(?:\.[0-9]{1,20})?")
# The paths of other files about an image, in the same line.
_IMAGE_FILE = re.compile(rf"\S[^\n]*\.(?i:{'|'.join(FORMAT_OF)})".encode())
_PNG = re.compile(rb"\S[^\n]*\.(?i:png)")
_ANNOTATION_FILE = re.compile(rb"\S[^\n]*\.(?i:xml|txt|json)")
_CORNERS = ("xmin", "ymin", "xmax", "ymax")
_SIZES = ("x", "y", "w", "h")
_NUMBER = r"-?[0-9][0-9.eE+-]*"
_KITTI_LINE = re.compile(rb"[A-Za-z_]+(?:[ \t]+-?[0-9.]+){14,15}\s*")
# As in WIDER FACE: for each image 0--Parade/1.jpg, 1, and 5 6 10 12 0 0 0 0 0 0; Datumaro writes
# 5.0 6.0 10.0 12.0 - - - False - - cat.
_BLOCK = re.compile(
    (
        rf"(?m)^{_IMAGE}[ \t]*\r?\n[0-9]{{1,6}}[ \t]*\r?\n"
        rf"{_NUMBER}(?:[ \t]+{_NUMBER}){{3}}(?:[ \t]+[^\s]{{1,100}}){{0,20}}[ \t]*\r?$"
    ).encode()
)
# As in many YOLO programs: 1.jpg 50,100,150,200,0 30,50,200,120,3.
_BOXES_BEHIND = re.compile(
    rf"(?m)^{_WORD_WITH_IMAGE}(?:[ \t]+{_NUMBER}(?:,{_NUMBER}){{3,5}})+[ \t]*\r?$".encode()
)
# As in CelebA: a number, the names of columns, and for each image 1.jpg 95 71 226 313.
_COUNTED_COLUMNS = re.compile(
    (
        rf"\A[0-9]+[ \t]*\r?\n[A-Za-z0-9_]+(?:[ \t]+[^\s]+)*[ \t]*\r?\n"
        rf"{_WORD_WITH_IMAGE}[ \t]+\S"
    ).encode()
)
# As in mmocr: {"file_name": "1.jpg", "annotations": []}.
_JSON_ABOUT_IMAGE = re.compile(
    rf'\s*\{{\s*"[^\n]{{0,1000}}?\.(?i:{"|".join(FORMAT_OF)})"[^\n]*\}}\s*'.encode()
)
# As in PaddleOCR: imgs/1.jpg, a tab, and [{"transcription": "hi", "points": [[1, 2], …]}].
_OUTLINED_TEXTS = re.compile(rf'(?m)^{_IMAGE}\t\[{{"(?:transcription|points)"'.encode())
# As in Flickr8k: 1.jpg#0, a tab, and a caption.
_NUMBERED_CAPTIONS = re.compile(rf"(?m)^{_IMAGE}#[0-9]+\t[^\t\n]+$".encode())
# As in captions.txt on Kaggle: image,caption in the first line, then lines like 1.jpg,A dog runs .
_HEADER = re.compile(
    rf"\A(?:\xef\xbb\xbf)?[A-Za-z_]\w*(?P<separator>[,;\t])[A-Za-z_][^.\n]*\n"
    rf"(?:{_IMAGE}(?P=separator)[^\n]*(?:\n|\Z))+".encode()
)
_PATH_AND_TEXT = re.compile(rf"{_IMAGE}\t[^\t]*".encode())
_PATH_AND_WORDS = re.compile(rf"{_IMAGE}\t[^\t]*[^\s] [^\t]*".encode())
# As in a list of images with their classes: 1.jpg 0.
_LINE_ABOUT_IMAGE = re.compile(
    rf"(?m)^[^\s,;]*\.(?i:{'|'.join(FORMAT_OF)})[ \t,;]+[^\s,;]".encode()
)


def describe_text(begin: bytes) -> str:
    """Returns what an annotation text file holds, and how to use it, or "" for other text files."""
    files = _describe_files(begin)
    if files:
        return files
    for is_kind, text in _KINDS:
        if is_kind(begin):
            return text
    if len(_LINE_ABOUT_IMAGE.findall(begin)) > 1:
        return _describe_values(begin)
    return ""


def _describe_values(begin: bytes) -> str:
    """Says how to make a table from lines with a path and values, such as 1.jpg 0."""
    start = "lists images with values"
    separator, rows = _split_rows(begin)
    if not rows:
        return f"{start}, but their number varies: write a CSV for `table=`, with a row per image"
    names = _name_columns(rows)
    return f"{start}: {_write_table(separator, names)}: read it with {_list_options(names)}"


def _describe_files(begin: bytes) -> str:
    """Describes lines with an image and its other files, such as a mask; may return ""."""
    separator, rows = _split_rows(begin)
    columns = [*zip(*rows, strict=True)][1:]
    if not _LINE_ABOUT_IMAGE.search(begin) or not columns:
        return ""
    if _all_match(columns[0], _ANNOTATION_FILE):
        return (
            f"lists images with their annotation files, such as {os.fsdecode(columns[0][0])}: it "
            "only says which images are in a split; boxes and classes are in those files: `table=` "
            "reads VOC and COCO, and explains what YOLO needs; for other formats, write a CSV with "
            "a row per box"
        )
    if not _all_match(columns[0], _IMAGE_FILE):
        return ""
    start = "lists images with other images, such as their masks"
    if not _all_match(columns[0], _PNG):
        return (
            f"{start}: save these as PNGs, and write a CSV for `table=` with a column for each path"
        )
    names = _name_files(columns)
    features = [f"{name}:pair" for name in names if name.startswith("image")]
    features.append("mask:mask")
    label = next(
        (f"{spell_option('label_column', name)}, " for name in names if name.startswith("value")),
        "",
    )
    return (
        f"{start}: {_write_table(separator, names)}: read it with `table=`, `uri_column=path`, "
        f"{label}and {spell_option('feature_columns', ','.join(features))}; if the last images are "
        "not masks, but belong to pairs, name their column other, and declare it as other:pair"
    )


def _name_files(columns: Sequence[Sequence[bytes]]) -> list[str]:
    """Chooses names for the columns of a text file with images; takes the last PNGs for masks.

    Args:
        columns: the cells of each column after the first, which holds the images.
    """
    names = ["path"]
    for number, cells in enumerate(columns, 2):
        names.append(f"image{number}" if _all_match(cells, _PNG) else f"value{number}")
    last = max(place for place, name in enumerate(names) if name.startswith("image"))
    return [*names[:last], "mask", *names[last + 1 :]]


def _split_rows(begin: bytes) -> tuple[str, list[list[bytes]]]:
    """Splits each of the first lines of a text file into the same number of cells.

    Returns:
        The separator, as pandas spells it, and the rows; both are empty if no separator divides all
        lines into the same number of cells.
    """
    lines = [*filter(None, begin.removesuffix(begin.rpartition(b"\n")[2]).splitlines())]
    for separator, pattern in _SEPARATORS.items():
        rows = [pattern.split(line.strip()) for line in lines]
        numbers = {len(row) for row in rows}
        if len(numbers) == 1 and numbers != {1}:
            return separator, rows
    return "", []


def _write_table(separator: str, names: Sequence[str]) -> str:
    """Returns pandas code that writes a table from a text file without a header."""
    return (
        f"with pandas, read_csv(FILE, sep={separator}, names={names}, dtype=str, "
        "skipinitialspace=True, na_filter=False).to_csv(FILE[:-3] + 'csv', index=False) "
        "writes a table"
    )


def _all_match(cells: Sequence[bytes], pattern: re.Pattern[bytes]) -> bool:
    return all(map(pattern.fullmatch, cells))


def _list_options(names: Sequence[str]) -> str:
    """Lists the options that read a table whose columns have these names."""
    if {*_SIZES} <= {*names}:  # these names imply the options
        return "`table=`"
    if {*_CORNERS} <= {*names}:
        return (
            "`table=`; if the last two numbers are the width and height of a box, name the four "
            "columns x, y, w and h"
        )
    return f"`table=`, `uri_column=path` and {spell_option('label_column', names[1])}"


def _name_columns(rows: Sequence[Sequence[bytes]]) -> list[str]:
    """Chooses names for the columns of a text file without a header; the first holds paths.

    Args:
        rows: the cells of each line; all lines have the same number of cells.
    """
    number = len(rows[0])
    if number == 2:
        return ["path", "class"]
    if number in (5, 6):
        for place in range(1, number - 3):
            sides = _name_sides([row[place : place + 4] for row in rows])
            if sides:
                names = ["path", *["class"] * (number - 5)]
                return [*names[:place], *sides, *names[place:]]
    return ["path", *(f"value{column}" for column in range(1, number))]


def _name_sides(boxes: Sequence[Sequence[bytes]]) -> tuple[str, ...]:
    """Returns names for four columns if they hold boxes, or an empty tuple if they do not."""
    cells = [cell for box in boxes for cell in box]
    if not all(map(_PLAIN_NUMBER.fullmatch, cells)):
        return ()
    numbers = [[float(cell) for cell in box] for box in boxes]
    if all(left < right > 1 and top < bottom > 1 for left, top, right, bottom in numbers):
        return _CORNERS
    if all(width > 1 and height > 1 for _, _, width, height in numbers):
        return _SIZES
    return ()


def has_rows(begin: bytes) -> bool:
    """Whether each of the first lines of a text file has several cells."""
    rows = [_CELL_SEPARATOR.split(line.strip()) for line in begin.splitlines()[:FIRST_LINES]]
    return bool(rows) and all(1 < len(row) <= _MOST_CELLS for row in rows)


def list_row_starts(begin: bytes) -> list[bytes]:
    """Returns the first cell in each of the first lines of a text file."""
    return [_CELL_SEPARATOR.split(line.strip())[0] for line in begin.splitlines()[:FIRST_LINES]]


def has_texts_of_images(begin: bytes) -> bool:
    """Whether each of the first lines is the path of an image, a tab, and text with spaces."""
    return have_lines(begin, _PATH_AND_WORDS)


def have_lines(begin: bytes, pattern: re.Pattern[bytes]) -> bool:
    """Whether each of the first lines of a text file matches a pattern."""
    lines = begin.splitlines()[:FIRST_LINES]
    return bool(lines) and all(map(pattern.fullmatch, lines))


def is_of_kitti(begin: bytes) -> bool:
    """Whether a text file has the boxes of one image, in the format of KITTI."""
    return have_lines(begin, _KITTI_LINE)


def _has_blocks(begin: bytes) -> bool:
    return _BLOCK.search(begin) is not None


def _has_boxes_behind(begin: bytes) -> bool:
    return _BOXES_BEHIND.search(begin) is not None


def _has_counted_columns(begin: bytes) -> bool:
    return _COUNTED_COLUMNS.search(begin) is not None


def _has_objects(begin: bytes) -> bool:
    return have_lines(begin, _JSON_ABOUT_IMAGE)


def _has_outlined_texts(begin: bytes) -> bool:
    return _OUTLINED_TEXTS.search(begin) is not None


def _has_numbered_captions(begin: bytes) -> bool:
    return _NUMBERED_CAPTIONS.search(begin) is not None


def _has_header(begin: bytes) -> bool:
    return _HEADER.match(b"\n".join(begin.splitlines()[:FIRST_LINES])) is not None


def _has_texts_behind_tabs(begin: bytes) -> bool:
    return have_lines(begin, _PATH_AND_TEXT)


_BOXES_CURE = "no option reads: write a CSV for `table=`, with a row per box"
# A test for each kind of text file, and what messages say after the path of such a file.
_KINDS: tuple[tuple[Callable[[bytes], bool], str], ...] = (
    (is_of_kitti, f"is a KITTI file, which {_BOXES_CURE}"),
    (_has_blocks, f"has boxes in lines below each image, as in WIDER FACE, which {_BOXES_CURE}"),
    (_has_boxes_behind, f"has boxes after the path of each image, which {_BOXES_CURE}"),
    (
        _has_counted_columns,
        "has columns separated by spaces below a line with the number of rows, as in CelebA: with "
        "pandas, read_csv(FILE, sep=r'\\s+', skiprows=1, index_col=0).rename_axis('path')"
        ".to_csv('table.csv') writes a table to read with `table=`",
    ),
    (_has_objects, "is JSON Lines: rename it to end in .jsonl, and read it with `table=`"),
    (
        _has_outlined_texts,
        "has texts and their outlines after the path of each image, as in PaddleOCR: jq -cR "
        '\'split("\\t") | {path: .[0]} + (.[1:] | join("\\t") | fromjson | {text: '
        "map(.transcription), box: map(.points | [(map(.[0]) | min), (map(.[1]) | min), "
        "(map(.[0]) | max), (map(.[1]) | max)])})' FILE > table.jsonl writes a table with the "
        "boxes around them: read it with `table=`, `uri_column=path` and "
        "`feature_columns='box:bbox[xyxy],text:bytes[]'`",
    ),
    (
        _has_numbered_captions,
        "has several captions for each image, as in Flickr8k: with pandas, read_csv(FILE, "
        "sep='#[0-9]+\\t', names=['path', 'caption'], dtype=str, quoting=3, engine='python')"
        ".groupby('path').caption.agg(list).reset_index()"
        ".to_json('table.jsonl', orient='records', lines=True) writes a table: read it with "
        "`table=`, `uri_column=path` and `feature_columns='caption:bytes[]'`",
    ),
    (
        _has_header,
        "has a row for each image or caption below a line with column names: rename it to end in "
        ".csv (.tsv if it has tabs), and read it with `table=`",
    ),
    (
        _has_texts_behind_tabs,
        "lists images, with text or a class after a tab: with pandas, read_csv(FILE, sep='\\t', "
        "names=['path', 'text'], dtype=str, na_filter=False, quoting=3)"
        ".to_csv(FILE[:-3] + 'csv', index=False) writes a table: read it with `table=`, "
        "`uri_column=path` and `feature_columns=text:bytes` or `label_column=text`",
    ),
)
