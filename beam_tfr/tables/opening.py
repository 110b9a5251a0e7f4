"""Opens tables: finds the files, and infers the types of their columns from the first rows."""

import functools
import itertools
import re
from collections.abc import Mapping, Sequence
from typing import Any

from beam_tfr import storage
from beam_tfr.inputs.listing import match_files, suggest_dataset
from beam_tfr.inputs.patterns import common_folder, is_wild
from beam_tfr.options import ConvertOptions
from beam_tfr.options.implied import KNOWN, is_dataset, optional_columns
from beam_tfr.options.tabular import TableOptions
from beam_tfr.records.examples import MAX_FEATURES
from beam_tfr.schema import feature_names
from beam_tfr.schema.boxes import BOXES, CLASSES, MASKS
from beam_tfr.schema.columns import ColumnType, infer_type, parse_type, typed
from beam_tfr.schema.dataset import MANIFEST_FILE
from beam_tfr.schema.differences import join_texts
from beam_tfr.schema.encodings import IMAGE_ENCODINGS
from beam_tfr.schema.errors import UsageError
from beam_tfr.schema.features import DICT_NAMES, column_features, companion_in, features_of
from beam_tfr.schema.naming import parse_file_name
from beam_tfr.tables.checks import check_columns, table_error
from beam_tfr.tables.content import TableContent, imply_columns
from beam_tfr.tables.datasets import open_dataset
from beam_tfr.tables.formats import DELIMITERS, read_columns, read_rows, split_suffix
from beam_tfr.tables.rows import Tables, folder_of, resolve
from beam_tfr.tables.tfds import open_tfds

SAMPLE_ROWS = 10_000  # the first rows, of the tables in the order of their names
SAMPLE_TABLES = 1_000  # an XML file is a table of one row
_PLACES = re.compile(
    r"(?i)(.*_)?(b?box(es)?|box_[xywh]|[xy]([12]|_?min|_?max))|.*(key_?points|landmarks|polygons?)"
)


def find_content(options: ConvertOptions) -> TableContent:
    """Finds the tables, and what their content implies.

    Raises:
        UsageError: there is no table, or one cannot be used.
        DataError: the first one is damaged.
    """
    dataset = next(filter(is_dataset, options.table), "")
    if dataset:
        if len(options.table) > 1 or (is_wild(dataset) and not storage.find(dataset)):
            raise table_error(
                dataset, "is a dataset, which can only be read alone: give the path of one"
            )
        return (open_dataset if dataset.endswith(MANIFEST_FILE) else open_tfds)(options, dataset)
    files = find_tables(options.table)
    own = [
        path for path in files if options.uri_column and parse_file_name(path.rpartition("/")[2])
    ]
    if own and (cure := suggest_dataset(own[0].rpartition("/")[0])):
        raise table_error(
            own[0], f"is a shard, which does not say what its split and classes are{cure}"
        )
    columns = next(filter(None, (read_columns(path, SAMPLE_ROWS) for path in files)), None)
    if columns is None:
        raise table_error(" ".join(options.table), "there are no rows")
    return imply_columns(options, files, columns)


def open_tables(content: TableContent, classes: frozenset[str] | None = None) -> Tables:
    """Reads up to `SAMPLE_ROWS` rows of tables.

    Args:
        content: result of `find_content`.
        classes: the allowed classes, or None for any.

    Raises:
        UsageError: a column is missing, has no type or one that none of the first rows fits, or has
            a reserved name.
    """
    options = content.options
    files = content.files
    present = content.columns
    roles = options.roles
    uri_column = options.uri_column
    reserved = _reserved(options)
    folder = _common_folder(files, "tables")
    given = {} if uri_column else {KNOWN: ""}
    given = dict(given if options.feature_columns is None else options.feature_columns)
    known: tuple[str, ...] = ()
    if given.pop(KNOWN, None) is not None:
        known = tuple(present)
        others = [*roles, *optional_columns(files[0])]
        given |= {name: "" for name in present if name not in given and name not in others}
    check_columns(files[0], present, [*roles, *given])
    if len(given) + len(reserved) > MAX_FEATURES:
        problem = f"{len(given):,} columns would become features, and readers take {MAX_FEATURES:,}"
        raise table_error(files[0], f"{problem}; choose fewer with `feature_columns=`")
    if "" in given:
        cure = "choose features with `feature_columns=`, or write the table without pandas's index"
        raise table_error(files[0], f"a column has no name; {cure} (to_csv(index=False))")
    if not uri_column and not given:
        raise table_error(
            files[0], "no column is left to become a feature; give `uri_column=`, or add columns"
        )
    columns = list(dict.fromkeys([*roles, *given]))
    if uri_column:
        images = [uri_column, *(name for name, column in typed(given).items() if column.beside)]
    else:
        images = []
    read = content.read_rows or functools.partial(
        read_rows, known=known, images=images, label=options.label_column
    )
    rows = itertools.chain.from_iterable(read(path, columns) for path in files[:SAMPLE_TABLES])
    cells = zip(*(cells for _, cells in itertools.islice(rows, SAMPLE_ROWS)), strict=True)
    sample = dict(zip(columns, cells, strict=False))
    if not sample:
        raise table_error(" ".join(options.table), "there are no rows")
    if uri_column and all(isinstance(cell, ValueError) for cell in sample[uri_column]):
        raise table_error(
            files[0], f"column {uri_column!r} {sample[uri_column][0]}, in all of the first rows"
        )
    held = [name for name in columns if name != uri_column and _holds_images(sample[name][0])]
    others = [name for name in held if name not in images]
    if others:
        cure = f"name it as `uri_column={others[0]}`, or as `feature_columns={others[0]}:pair` beside another"
        raise table_error(files[0], f"column {others[0]!r} holds images; {cure}, or leave it out")
    taken = [name for name in given if name in reserved]
    if taken:
        cure = "records or readers have a feature of this name; rename the column"
        raise UsageError(cure, option="feature_columns", value=taken[0])
    if options.bad_boxes == "drop":  # however many there are
        sample |= dict.fromkeys(
            [name for name, column in typed(given).items() if column.boxes or column.points], ()
        )
    types = {
        name: _type(files[0], name, kind, sample[name], "*," * bool(known))
        for name, kind in given.items()
    }
    stay = (
        options.resize == "none" and options.ignore_orientation
    )  # the pixels, and so do coordinates in columns
    warnings = _tell_coordinates(types) if options.encoding in IMAGE_ENCODINGS and not stay else ()
    base = f"{options.image_root.rstrip('/')}/" if options.image_root else ""
    return Tables(
        files=files,
        options=options.part(TableOptions),
        splits=options.splits,
        classes=classes,
        folder=folder,
        root=base or (_root(folder, sample[uri_column]) if uri_column else folder),
        base=base,
        multi_label=bool(options.label_separator)
        or any(isinstance(cell, list) for cell in sample.get(options.label_column, ()))
        or any(column.boxes for column in types.values()),
        types=types,
        read_rows=read,
        warnings=(*content.warnings, *warnings),
    )


def _tell_coordinates(types: Mapping[str, ColumnType]) -> list[str]:
    """Warns of features that look like places in the image, by their names, given their types."""
    numbers = [name for name, column in types.items() if re.match("int64|float|bytes", column.text)]
    cure = "declare boxes and their points, such as `feature_columns=box:bbox[xyxy],outline:points[xy]`"
    found = join_texts([*filter(_PLACES.fullmatch, numbers)])
    if found:
        return [f"features that look like coordinates do not follow the pixels: {found}; {cure}"]
    return []


def _holds_images(cell: Any) -> bool:
    return any(
        isinstance(part, storage.Entry) for part in (cell if isinstance(cell, list) else [cell])
    )


def _reserved(options: ConvertOptions) -> set[str]:
    """Names that columns must not have, since records or readers have such features."""
    columns = typed(options.feature_columns)
    boxes = any(column.boxes for column in columns.values())
    reserved = {*DICT_NAMES, *([*feature_names.BOX_NAMES, BOXES, CLASSES] if boxes else [])}
    for name, column in columns.items():
        key = MASKS if column.is_box_mask else companion_in(name, column).key
        reserved |= {*column_features(name, column), key} - {name}
        if column.boxes:
            reserved -= {name}
    own = {*features_of({"encoding": options.encoding}, labelled=True)}
    return reserved | (own.difference(feature_names.SOURCE_SIDES) if boxes else own)


def find_tables(patterns: Sequence[str]) -> tuple[str, ...]:
    """Lists the tables that match the patterns, sorted, each once.

    Raises:
        UsageError: a pattern matches no file, or one that is not a table.
    """
    paths = sorted(
        {
            entry.path
            for pattern in patterns
            for entry in match_files([(pattern, ())], option="table")
        }
    )
    for path in paths:
        split_suffix(path)  # raises an error if it is not a table
    return tuple(paths)


def _type(path: str, name: str, kind: str, cells: Sequence[Any], others: str) -> ColumnType:
    try:
        if kind:
            column_type = parse_type(kind)
        else:
            column_type = infer_type(cells, typed=split_suffix(path)[1] not in DELIMITERS)
    except ValueError as error:
        problem = f"column {name!r} {error} in the first rows, which cannot be a feature"
        cure = f"`feature_columns='{others}{name}:bytes'` stores it as text; or name the columns that become features"
        raise table_error(path, f"{problem}; {cure}") from None
    if cells and all(_problem(column_type, cell) for cell in cells):
        problem = (
            f"column {name!r} as {column_type.text} would reject all of the first {len(cells)} rows"
        )
        cure = f"give another type, `feature_columns={name}:TYPE`, or name the columns that become features"
        raise table_error(path, f"{problem} (row 1: {_problem(column_type, cells[0])}); {cure}")
    return column_type


def _problem(column_type: ColumnType, cell: Any) -> str:
    """Why a cell does not fit a type; empty if it does."""
    try:
        column_type.values(cell)
    except ValueError as error:
        return str(error)
    return ""


def _root(folder: str, uris: Sequence[Any]) -> str:
    """The folder that the paths of the first rows share, or that of the tables if a path is
    relative.

    A later row outside this folder is an error, so the number of rows read here never changes the
    keys.
    """
    paths = []
    for uri in uris:
        try:
            path = resolve(uri, folder)
        except ValueError:
            continue
        if not uri.startswith(("/", storage.GCS)):
            return folder
        paths.append(path)
    return _common_folder(paths, "the files that its rows name") if paths else folder


def _common_folder(paths: Sequence[str], what: str) -> str:
    return common_folder([folder_of(path)[:-1] for path in paths], option="table", what=what)
