"""Warns if the first rows of tables do not look suited to their use."""

import contextlib
import itertools
import os
import posixpath
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from typing import Any

from beam_tfr import storage
from beam_tfr.features.base import ColumnKind
from beam_tfr.features.cells import NUMBER
from beam_tfr.options import ConvertOptions
from beam_tfr.options.implied import table_suffix
from beam_tfr.schema.differences import join_names, join_texts
from beam_tfr.schema.encodings import IMAGE_ENCODINGS
from beam_tfr.schema.extensions import has_image_name
from beam_tfr.schema.spelling import spell_option
from beam_tfr.tables.content import TableContent
from beam_tfr.tables.coordinates import find_coordinates
from beam_tfr.tables.dialects import DECIMAL_COMMA
from beam_tfr.tables.foreign_paths import WEB_ADDRESS
from beam_tfr.tables.image_names import ImageFinder
from beam_tfr.tables.lost_images import describe_folders, name_root
from beam_tfr.tables.lost_zeros import find_padded_images
from beam_tfr.tables.paths import folder_of
from beam_tfr.tables.suggested_roles import suggest_roles

LEAST_NUMBERS = 20  # this many different numbers in as many rows are hardly classes
_POINTS_BETWEEN = r"[+-]?[0-9]{1,3}(?:\.[0-9]{3})+,[0-9]+"  # 1.000,5
_COMMAS_BETWEEN = r"[+-]?[0-9]{1,3}(?:,[0-9]{3})+(?:\.[0-9]*)?"  # 1,000.5
_WITH_COMMA = re.compile(f"{DECIMAL_COMMA.pattern}|{_POINTS_BETWEEN}|{_COMMAS_BETWEEN}")
_POINTS = re.compile(_POINTS_BETWEEN)
_THOUSANDS = re.compile(_COMMAS_BETWEEN)
_DIGITS = r"[0-9]++\.?[0-9]*+"
_MARKED = re.compile(rf"\+{_DIGITS}|-?[$€£¥] ?{_DIGITS}|-?{_DIGITS} ?[%€]")  # +1, $10, 5%
_NUMBERED = re.compile(r"(?i).+\.(?:jpe?g|png|tiff?|bmp|webp|gif|dcm)_\w{1,40}")  # 0.jpg_1
# Strings that look like lists or objects of JSON, Python or NumPy.
_LIKE_LIST = re.compile(r"\s*(?:\[.*\]|\(\s*['\"0-9].*,[^,]*\)|\{\s*['\"].*\})\s*", re.DOTALL)
_LIKE_OBJECTS = re.compile(r"\s*+\[?\s*+\{")
_FILE_PATH = re.compile(r"(?i)\S[^\n]*\.(?:png|xml|txt|json)")
_TEXTS = (".csv", ".tsv", ".jsonl", ".ndjson")
_FIRST_CELLS = 20  # cells of a column that must all name images
_MOST_FOLDERS = 20  # folders next to a table that are searched for images


def warn_of_numbers_as_classes(
    options: ConvertOptions, names: Iterable[Any], num_rows: int
) -> Iterator[str]:
    """Yields a warning if classes look like values to predict: a different number in each row."""
    numbers = {name for name in names if NUMBER.fullmatch(str(name))}
    if num_rows >= LEAST_NUMBERS and len(numbers) == num_rows:
        column = options.label_column
        yield (
            f"column {column!r} has {num_rows:,} different numbers in the first {num_rows:,} rows, "
            "each of which becomes a class; if they are values to predict, make them a feature: "
            f"{spell_option('feature_columns', f'{column}:float')} instead of `label_column=`; "
            f"readers return it in place of labels with target={column!r}"
        )


def warn_of_paths_as_classes(options: ConvertOptions, names: Iterable[Any]) -> Iterator[str]:
    """Yields a warning if classes are the paths of other files, such as masks."""
    texts = [name for name in itertools.islice(names, _FIRST_CELLS) if isinstance(name, str)]
    if not options.uri_column or not texts or not all(map(_FILE_PATH.fullmatch, texts)):
        return
    column = options.label_column
    yield (
        f"column {column!r} has paths as classes, such as {texts[0]:.100}; without "
        f"`label_column=`, {spell_option('feature_columns', f'{column}:mask')} stores PNGs at "
        "these paths as masks; boxes and classes in label files need a `table=` of their own"
    )


def warn_of_folders(content: TableContent, images: Sequence[str]) -> Iterator[str]:
    """Yields a warning about images in several folders whose names no column or option uses.

    Args:
        content: the findings about the tables.
        images: paths of the first images, relative to the folder of all images.
    """
    options = content.options
    suffix = table_suffix(content.files[0])
    is_tar = suffix == ".tar"
    is_list = suffix in _TEXTS and len(content.columns) == 1
    if options.label_column or not (is_tar or is_list):
        return
    folders = sorted({posixpath.dirname(image) for image in images})
    if len(folders) < 2:
        return
    shown = join_names(folders)
    if is_tar:
        cure = (
            f"{spell_option('input', content.files[0])} instead of `table=` uses the folders as "
            "classes"
        )
    else:
        cure = "`input_list=`, with a file of their full paths, uses the folders as classes"
    yield f"images are in several folders, {shown}, but nothing names their classes: {cure}"


def warn_of_images(content: TableContent, cells: Mapping[str, Sequence[Any]]) -> Iterator[str]:
    """Yields a warning if rows become records although a column names images.

    There is no warning if options for the encoding, keys or features ask for records of rows.
    """
    if not content.options.may_become_images:
        return
    folder = folder_of(content.files[0])
    for column, column_cells in cells.items():
        names = [cell for cell in column_cells if cell not in (None, "")][:_FIRST_CELLS]
        other_names = _describe_other_names(column, names)
        if other_names:
            yield other_names
            return
        root = _find_folder(names, folder) if names else ""
        if root:
            cure = suggest_roles(content, column)
            if root != folder:
                cure += f" with {name_root(root)}"
            yield (
                f"column {column!r} names images, such as {names[0]:.100}, but each row becomes a "
                f"record without its image: {cure} reads the images, and `encoding=row` keeps the "
                "rows as records"
            )
            return


def _describe_other_names(column: str, names: Sequence[Any]) -> str:
    """Describes image names that must be written differently, or returns an empty string.

    Args:
        column: the name of a column.
        names: the first nonempty cells of the column.
    """
    texts = [name for name in names if isinstance(name, str)]
    if not texts or len(texts) < len(names):
        return ""
    if all(map(_NUMBERED.fullmatch, texts)):
        return (
            f"column {column!r} has names of images followed by something else, such as "
            f"{texts[0]:.100}, but each row becomes a record without its image: write both "
            'into separate columns; with pandas: table[["image", "class"]] = '
            f'table[{column!r}].str.rsplit("_", n=1, expand=True)'
        )
    folders = describe_folders(texts)
    if not folders:
        return ""
    return (
        f"column {column!r} names folders, such as {texts[0]:.100}, but each row becomes a record "
        f"without images; {folders}"
    )


def _find_folder(names: Sequence[Any], folder: str) -> str:
    """Returns the folder of the images, or an empty string if not all cells name images.

    This is the table's folder or, if each cell is different, a folder in it. If images are in
    several of these inner folders, the table's folder is returned.
    """
    finder = ImageFinder()
    if _name_images(names, folder, finder):
        return folder
    if len({*map(str, names)}) < len(names) or storage.is_remote(folder):
        return ""
    padded = find_padded_images([str(name) for name in names], folder)
    if padded and 2 * len(padded.names) > len(names):
        return padded.folder
    first_folders = _list_inner(folder)
    for path in first_folders:
        if _name_images(names, f"{path}/", finder):
            return path
    parts = [f"{path}{below}" for path in first_folders for below in ("/", "/images/")]
    for name in names:
        if not any(_name_images([name], part, finder) for part in parts):
            return ""
    return folder


def _list_inner(folder: str) -> list[str]:
    """Lists the first folders in a folder on disk; returns an empty list if that fails."""
    with contextlib.suppress(OSError):
        inner = sorted(entry.path for entry in os.scandir(folder) if entry.is_dir())
        return inner[:_MOST_FOLDERS]
    return []


def _name_images(cells: Iterable[Any], folder: str, finder: ImageFinder) -> bool:
    """Whether all cells name images, by their extensions or as files below a folder."""
    return all(isinstance(cell, str) and _names_image(cell, folder, finder) for cell in cells)


def _names_image(cell: str, folder: str, finder: ImageFinder) -> bool:
    if WEB_ADDRESS.match(cell):
        return False
    if has_image_name(cell):
        return True
    if storage.is_remote(folder):  # listing it would take long
        return False
    with contextlib.suppress(ValueError):  # the string is not a path
        path = finder.find(cell, folder)
        return has_image_name(path) and os.path.exists(path)
    return False


def warn_of_texts(
    features: Sequence[ColumnKind],
    declarations: Mapping[str, str],
    sample: Mapping[str, Sequence[Any]],
    *,
    typed: bool,
) -> Iterator[str]:
    """Yields warnings about text columns that are mostly numbers, or look like lists.

    Args:
        features: the features that the columns become.
        declarations: column -> declaration, or an empty string if the cells determine the type.
        sample: column -> its cells in the first rows.
        typed: whether the format has types for text and lists.
    """
    for feature in features:
        if declarations[feature.name] or not feature.text.startswith("bytes"):
            continue
        texts = {cell for cell in sample[feature.name] if isinstance(cell, str) and cell}
        if texts and not typed and all(map(_LIKE_LIST.fullmatch, texts)):
            cure = 'write lists as JSON, such as ["a", "b"] or [1, 2]'
            if all(map(_LIKE_OBJECTS.match, texts)):
                cure = "write the table as JSON Lines, where fields of objects can be read"
            yield (
                f"column {feature.name!r} has lists or objects as text, such as {min(texts):.60}, "
                f"and is stored as text; {cure}"
            )
            continue
        problem = _describe_numbers(feature.name, texts)
        if problem:
            yield f"column {feature.name!r} has numbers{problem}"


def _describe_numbers(column: str, texts: Set[str]) -> str:
    """Says why numbers are stored as text, and how to fix them, or returns an empty string."""
    others = sorted(text for text in texts if not NUMBER.fullmatch(text))
    marked = sorted(filter(_MARKED.fullmatch, texts))
    if marked and {*others} <= {*marked}:
        return (
            f" with symbols, such as {marked[0]:.30}, and is stored as text; write numbers "
            "without symbols"
        )
    if not others:
        return ""
    if all(map(_WITH_COMMA.fullmatch, others)):
        return (
            f" with commas, such as {others[0]:.30}, and is stored as text; write numbers with a "
            f"decimal point and no thousands separators{_replace_commas(column, others)}"
        )
    if 2 * len(others) > len(texts):
        return ""
    shown = join_names([f"{text:.30}" for text in others])
    return (
        f", but is stored as text because of {shown}; `na_values=` lists values that stand for a "
        f"missing one, and {spell_option('feature_columns', f'{column}:float')} rejects rows with "
        "any other text"
    )


def _replace_commas(column: str, texts: Sequence[str]) -> str:
    """Returns the line of pandas that writes numbers without commas.

    Args:
        column: the name of the column.
        texts: the strings with commas in the column.
    """
    step = ".str.replace(',', '.')"
    reason = ""
    if any(map(_POINTS.fullmatch, texts)):
        step = f".str.replace('.', ''){step}"
    elif all(map(_THOUSANDS.fullmatch, texts)):
        step = ".str.replace(',', '')"
        reason = ", if commas separate thousands"
    return f"; with pandas{reason}: table[{column!r}] = table[{column!r}]{step}"


def warn_of_coordinates(options: ConvertOptions, features: Sequence[ColumnKind]) -> Iterator[str]:
    """Yields a warning about features whose names suggest coordinates.

    Columns that are not declared as boxes or points keep their values when images are resized or
    turned.
    """
    pixels_stay = options.resize == "none" and options.ignore_orientation
    if options.encoding not in IMAGE_ENCODINGS or pixels_stay:
        return
    plain = [feature.name for feature in features if feature.is_plain]
    coordinates = find_coordinates(plain)
    if coordinates:
        yield (
            "features that look like coordinates are not adjusted when images are resized or "
            f"turned: {join_texts(coordinates)}; declare boxes and their points, such as "
            "`feature_columns='box:bbox[xyxy],outline:points[xy]'`"
        )


def warn_of_ignored_orientation(
    options: ConvertOptions, features: Sequence[ColumnKind]
) -> Iterator[str]:
    """Yields a warning about shapes in tables whose images are not turned upright."""
    has_shapes = any(kind.follows_pixels and not kind.holds_files for kind in features)
    if options.ignore_orientation and has_shapes:
        yield (
            "boxes, points and masks in the tables are assumed to be drawn on upright images, and "
            "are turned along with the stored pixels: if they were drawn on the stored pixels, "
            "omit `ignore_orientation=`, and remove the orientation from the files "
            "(exiftool -r -Orientation= -overwrite_original FOLDER)"
        )
