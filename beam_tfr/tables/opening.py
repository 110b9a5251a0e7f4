"""Opens tables.

It finds the files, and infers the types of their columns from the first rows.
"""

import functools
import itertools
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from beam_tfr import storage
from beam_tfr.features.base import ColumnKind
from beam_tfr.features.cells import BadCell
from beam_tfr.features.companions import READER_KEYS
from beam_tfr.features.features_dict import FeaturesDict
from beam_tfr.features.inference import infer_declaration
from beam_tfr.features.registry import parse_column, parse_columns
from beam_tfr.inputs.listing import match_files, suggest_dataset
from beam_tfr.inputs.patterns import common_folder, is_wild
from beam_tfr.options import ConvertOptions
from beam_tfr.options.implied import KNOWN, is_dataset, optional_columns
from beam_tfr.options.tabular import TableOptions
from beam_tfr.records.examples import MAX_FEATURES
from beam_tfr.schema.dataset import MANIFEST_FILE
from beam_tfr.schema.differences import join_texts
from beam_tfr.schema.encodings import IMAGE_ENCODINGS
from beam_tfr.schema.errors import UsageError
from beam_tfr.schema.feature_names import SOURCE_SIDES
from beam_tfr.schema.naming import parse_file_name
from beam_tfr.tables.base import Row, check_columns, table_error
from beam_tfr.tables.content import TableContent, imply_columns
from beam_tfr.tables.datasets import open_dataset
from beam_tfr.tables.formats import format_of, read_columns, read_rows
from beam_tfr.tables.paths import folder_of, resolve_path
from beam_tfr.tables.rows import Tables
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
        return _find_dataset(options, dataset)
    files = find_tables(options.table)
    if options.uri_column:
        _refuse_shards(files)
    for path in files:
        columns = read_columns(path, SAMPLE_ROWS)
        if columns:
            return imply_columns(options, files, columns)
    raise table_error(" ".join(options.table), "there are no rows")


def _find_dataset(options: ConvertOptions, path: str) -> TableContent:
    """The content of a dataset, given the file that describes it.

    Raises as `find_content`.
    """
    is_pattern = is_wild(path) and not storage.find(path)
    if len(options.table) > 1 or is_pattern:
        raise table_error(path, "is a dataset, which can only be read alone: give the path of one")
    open_content = open_dataset if path.endswith(MANIFEST_FILE) else open_tfds
    return open_content(options, path)


def _refuse_shards(files: Sequence[str]) -> None:
    """Refuses tables if the first shard among them belongs to a dataset of ours.

    Raises:
        UsageError: it does; says how to read the dataset.
    """
    for path in files:
        folder, _, name = path.rpartition("/")
        if parse_file_name(name):
            cure = suggest_dataset(folder)
            if cure:
                raise table_error(
                    path, f"is a shard, which does not say what its split and classes are{cure}"
                )
            return


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
    declarations = _declare_columns(content)
    _check_declarations(content, declarations)
    files = [column.name for column in parse_columns(declarations) if column.holds_files]
    images = [options.uri_column, *files] if options.uri_column else []
    notes = list[str]()
    read = _row_reader(content, images)
    read_first = _row_reader(content, images, say=notes.append)
    columns = [*dict.fromkeys([*options.roles, *declarations])]
    sample = _read_sample(content, read_first, columns)
    _check_images(content, sample, images)
    _check_names(options, declarations)
    features = tuple(
        _open_column(content, name, declaration, sample[name])
        for name, declaration in declarations.items()
    )
    folder = _common_folder(content.files, "tables")
    base = f"{options.image_root.rstrip('/')}/" if options.image_root else ""
    root = base or folder
    if options.uri_column and not base:
        root = _common_root(folder, sample[options.uri_column])
    labels = sample.get(options.label_column, ())
    has_lists = any(isinstance(cell, list) for cell in labels)
    has_boxes = any(feature.per_box for feature in features)
    return Tables(
        files=content.files,
        options=options.restricted_to(TableOptions),
        splits=options.splits,
        classes=classes,
        folder=folder,
        root=root,
        base=base,
        multi_label=bool(options.label_separator) or has_lists or has_boxes,
        features=features,
        read_rows=read,
        warnings=(*content.warnings, *notes, *_warn_of_coordinates(options, features)),
    )


def _row_reader(
    content: TableContent, images: Sequence[str], **others: Any
) -> Callable[[str, Sequence[str]], Iterator[Row]]:
    """The function that yields the rows of a table with some columns.

    Args:
        content: what the tables say.
        images: the columns of images.
        others: more arguments of `read_rows`.
    """
    if content.read_rows:
        return content.read_rows
    options = content.options
    return functools.partial(
        read_rows,
        known_columns=tuple(content.columns) if _takes_all(options) else (),
        images=images,
        label=options.label_column,
        **others,
    )


def _takes_all(options: ConvertOptions) -> bool:
    """Whether all columns become features but those that have a role."""
    if options.feature_columns is None:
        return not options.uri_column
    return KNOWN in options.feature_columns


def _declare_columns(content: TableContent) -> dict[str, str]:
    """The columns that become features -> declaration.

    Empty where the rows have to show it.
    """
    options = content.options
    declarations = dict(options.feature_columns or {})
    if _takes_all(options):
        declarations.pop(KNOWN, None)
        left_out = {*options.roles, *optional_columns(content.files[0])}
        for name in content.columns:
            if name not in left_out:
                declarations.setdefault(name, "")
    return declarations


def _check_declarations(content: TableContent, declarations: Mapping[str, str]) -> None:
    """Checks that the first table has the columns that are wanted, and not too many.

    Raises:
        UsageError: it does not.
    """
    path = content.files[0]
    check_columns(path, content.columns, [*content.options.roles, *declarations])
    if len(declarations) + len(_reserved_names(content.options)) > MAX_FEATURES:
        raise table_error(
            path,
            f"{len(declarations):,} columns would become features, and readers take "
            f"{MAX_FEATURES:,}; choose fewer with `feature_columns=`",
        )
    if "" in declarations:
        raise table_error(
            path,
            "a column has no name; choose features with `feature_columns=`, or write the table "
            "without pandas's index (to_csv(index=False))",
        )
    if not content.options.uri_column and not declarations:
        raise table_error(
            path, "no column is left to become a feature; give `uri_column=`, or add columns"
        )


def _read_sample(
    content: TableContent,
    read: Callable[[str, Sequence[str]], Iterator[Row]],
    columns: Sequence[str],
) -> dict[str, Sequence[Any]]:
    """Column -> its cells in the first rows.

    Raises:
        UsageError: there are no rows.
    """
    files = content.files[:SAMPLE_TABLES]
    rows = itertools.chain.from_iterable(read(path, columns) for path in files)
    cells = [cells for _, cells in itertools.islice(rows, SAMPLE_ROWS)]
    if not cells or not columns:
        raise table_error(" ".join(content.options.table), "there are no rows")
    return dict(zip(columns, zip(*cells, strict=True), strict=True))


def _check_images(
    content: TableContent, sample: Mapping[str, Sequence[Any]], images: Sequence[str]
) -> None:
    """Checks that the column of images holds any, and columns of other kinds none.

    Args:
        content: what the tables say.
        sample: column -> its cells in the first rows.
        images: the columns of images.

    Raises:
        UsageError: it does not, or they do.
    """
    path = content.files[0]
    uri_column = content.options.uri_column
    if uri_column:
        cells = sample[uri_column]
        if all(isinstance(cell, BadCell) for cell in cells):
            problem = f"column {uri_column!r} {cells[0].problem}, in all of the first rows"
            raise table_error(path, problem)
    for name, cells in sample.items():
        if name not in images and _holds_image(cells[0]):
            raise table_error(
                path,
                f"column {name!r} holds images; name it as `uri_column={name}`, or as "
                f"`feature_columns={name}:pair` beside another, or leave it out",
            )


def _holds_image(cell: Any) -> bool:
    parts = cell if isinstance(cell, list) else [cell]
    return any(isinstance(part, storage.Entry) for part in parts)


def _check_names(options: ConvertOptions, names: Iterable[str]) -> None:
    """Checks that records and readers have no feature with the name of a column.

    Raises:
        UsageError: they have.
    """
    reserved = _reserved_names(options)
    for name in names:
        if name in reserved:
            raise UsageError(
                "records or readers have a feature of this name; rename the column",
                option="feature_columns",
                value=name,
            )


def _reserved_names(options: ConvertOptions) -> set[str]:
    """Names that columns must not have, since records or readers have such features."""
    features = FeaturesDict.from_options(
        {"encoding": options.encoding, "feature_columns": options.feature_columns}, labelled=True
    )
    reserved = {*READER_KEYS, *features.fixed}
    if features.boxes:
        reserved -= {*SOURCE_SIDES}  # which a table may state
    for kind in features.kinds:
        reserved |= kind.reserved
    return reserved


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
        format_of(path)  # raises an error if it is not a table
    return tuple(paths)


def _open_column(
    content: TableContent, name: str, declaration: str, cells: Sequence[Any]
) -> ColumnKind:
    """The feature that a column becomes.

    Args:
        content: what the tables say.
        name: of the column.
        declaration: of the column; empty if its cells have to show it.
        cells: those of the first rows.

    Raises:
        UsageError: no kind of feature fits the cells, or none of them fits the declaration.
    """
    path = content.files[0]
    choice = "or name the columns that become features"
    try:
        if not declaration:
            typed = format_of(path).has_types
            declaration = infer_declaration(cells, typed=typed)
        feature = parse_column(name, declaration)
    except ValueError as error:
        others = f"{KNOWN}," if _takes_all(content.options) else ""
        raise table_error(
            path,
            f"column {name!r} {error} in the first rows, which cannot be a feature; "
            f"`feature_columns='{others}{name}:bytes'` stores it as text; {choice}",
        ) from None
    may_be_bad = feature.may_be_bad and content.options.box_policy.drop_bad
    if feature.holds_files or may_be_bad:
        return feature
    if all(_find_problem(feature, cell) for cell in cells):
        raise table_error(
            path,
            f"column {name!r} as {feature.text} would reject all of the first {len(cells)} rows "
            f"(row 1: {_find_problem(feature, cells[0])}); give another type, "
            f"`feature_columns={name}:TYPE`, {choice}",
        )
    return feature


def _find_problem(feature: ColumnKind, cell: Any) -> str:
    """Why a cell does not fit a feature; empty if it does."""
    try:
        feature.parse(cell)
    except ValueError as error:
        return str(error)
    return ""


def _warn_of_coordinates(options: ConvertOptions, features: Sequence[ColumnKind]) -> Iterator[str]:
    """Yields a warning about features with names like those of coordinates.

    Columns that are no boxes or points do not follow the pixels.
    """
    pixels_stay = options.resize == "none" and options.ignore_orientation
    if options.encoding not in IMAGE_ENCODINGS or pixels_stay:
        return
    plain = [feature.name for feature in features if feature.is_plain]
    coordinates = [*filter(_PLACES.fullmatch, plain)]
    if coordinates:
        yield (
            "features that look like coordinates do not follow the pixels: "
            f"{join_texts(coordinates)}; declare boxes and their points, such as "
            "`feature_columns=box:bbox[xyxy],outline:points[xy]`"
        )


def _common_root(folder: str, uris: Sequence[Any]) -> str:
    """The folder that the paths of the first rows share.

    If a path is relative, the folder of the tables.

    A later row outside this folder is an error, so the number of rows read here never changes the
    keys.
    """
    paths = []
    for uri in uris:
        try:
            path = resolve_path(uri, folder)
        except ValueError:
            continue
        if not uri.startswith(("/", storage.GCS)):
            return folder
        paths.append(path)
    return _common_folder(paths, "the files that its rows name") if paths else folder


def _common_folder(paths: Sequence[str], noun: str) -> str:
    return common_folder([folder_of(path)[:-1] for path in paths], option="table", noun=noun)
