"""Opens tables.

It finds the files, and infers the types of their columns from the first rows.
"""

import contextlib
import functools
import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from beam_tfr import storage
from beam_tfr.features.base import ColumnKind
from beam_tfr.features.cells import BadCell
from beam_tfr.features.companions import READER_KEYS
from beam_tfr.features.features_dict import FeaturesDict
from beam_tfr.features.inference import infer_declaration
from beam_tfr.features.registry import find_boxes, parse_column, parse_columns
from beam_tfr.inputs.listing import match_files, suggest_dataset
from beam_tfr.inputs.patterns import common_folder, is_wild, literal_start
from beam_tfr.inputs.skipped import UNCOUNTED, FoundFolders
from beam_tfr.options import ConvertOptions
from beam_tfr.options.implied import (
    KNOWN,
    is_dataset,
    may_hold_images,
    optional_columns,
    stand_in_columns,
)
from beam_tfr.options.tabular import TableOptions
from beam_tfr.records.examples import MAX_FEATURES
from beam_tfr.schema.dataset import MANIFEST_FILE
from beam_tfr.schema.differences import join_texts
from beam_tfr.schema.errors import UsageError
from beam_tfr.schema.extensions import is_junk
from beam_tfr.schema.feature_names import SOURCE_SIDES
from beam_tfr.schema.naming import parse_file_name
from beam_tfr.tables.annotations import describe_uncertainty
from beam_tfr.tables.base import (
    DamagedTableError,
    ObjectFormat,
    OtherColumn,
    Row,
    RowReader,
    check_columns,
    table_error,
)
from beam_tfr.tables.box_columns import BOX, find_box_columns, find_size_columns
from beam_tfr.tables.content import (
    SPLIT,
    TableContent,
    imply_by_file,
    imply_columns,
)
from beam_tfr.tables.datasets import open_dataset
from beam_tfr.tables.doubts import (
    PLACES,
    warn_of_coordinates,
    warn_of_numbers_as_classes,
    warn_of_texts,
    warn_of_unused_columns,
)
from beam_tfr.tables.formats import format_of, has_table_name, read_columns, read_rows
from beam_tfr.tables.image_folders import (
    ImageFolder,
    describe_image_folders,
    describe_image_root,
    find_image_folders,
    guess_image_root,
)
from beam_tfr.tables.image_names import ImageFinder, ImageName
from beam_tfr.tables.joining import (
    FirstRows,
    JoinedRows,
    RowJoin,
    describe_join,
    find_join,
    join_first_rows,
)
from beam_tfr.tables.names import NameColumn
from beam_tfr.tables.paths import folder_of, is_absolute, read_path, resolve_path
from beam_tfr.tables.roles import split_labels
from beam_tfr.tables.rows import Tables
from beam_tfr.tables.split_columns import (
    describe_split_feature,
    find_split_column,
    imply_split_column,
)
from beam_tfr.tables.split_sources import SplitSource, choose_split_source
from beam_tfr.tables.tfds import open_tfds
from beam_tfr.tables.unlabelled import describe_unlabelled

SAMPLE_ROWS = 10_000  # the first rows, of the tables in the order of their names
SAMPLE_BYTES = 256 << 20  # 256 MiB of cells that are bytes, after which no more rows are read
SAMPLE_TABLES = 1_000  # an XML file is a table of one row
MOST_NOTES = 5  # about how tables were read


def find_content(options: ConvertOptions) -> TableContent:
    """Finds the tables, and what their content implies.

    Raises:
        UsageError: there is no table, or one cannot be used.
        DataError: the first one is damaged.
    """
    dataset = next(filter(is_dataset, options.table), "")
    if dataset:
        return _find_dataset(options, dataset)
    found = find_tables(options.table)
    options = imply_by_file(options, found.files[0])
    if options.uri_column:
        _refuse_shards(found.files)
    for path in found.files:
        columns = read_columns(path, SAMPLE_ROWS)
        if columns:
            content = imply_columns(options, found.files, columns)
            content = content._replace(warnings=(*found.warnings, *content.warnings))
            return _read_splits(content)
    raise table_error(" ".join(options.table), "there are no rows")


def _read_splits(content: TableContent) -> TableContent:
    """The content with the splits of a column that is called so, if the tables have one."""
    column = find_split_column(content.options, content.columns)
    if not column:
        return content
    if _takes_all(content.options):
        warnings = filter(None, [describe_split_feature(column)])
        return content._replace(warnings=(*content.warnings, *warnings))
    cells = list[Any]()
    with contextlib.suppress(DamagedTableError):  # of which reading the other columns tells
        for path in content.files[:SAMPLE_TABLES]:
            rows = itertools.islice(read_rows(path, [column]), SAMPLE_ROWS - len(cells))
            cells += [cells_of_row[0] for _, cells_of_row in rows]
    return imply_split_column(content, column, cells)


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


class _StandIn(NamedTuple):
    """A column that replaces another.

    Attributes:
        name: the other column.
        column: the column.
        notice: says so, and why.
    """

    name: str
    column: str
    notice: str


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
    stand_ins = stand_in_columns(content.files[0])
    others = [stand_ins[name] for name in declarations if name in stand_ins]
    files = [column.name for column in parse_columns(declarations) if column.holds_files]
    images = [options.uri_column, *files] if options.uri_column else []
    notes = list[str]()
    read = _row_reader(content, images)
    read_first = _row_reader(content, images, say=notes.append)
    columns = [*dict.fromkeys([*options.roles, *declarations, *others])]
    join = _plan_join(content, declarations)
    needed = join.read_columns(columns) if join else columns
    first = _read_sample(content, read_first, needed)
    joined = _join_sample(join, first, columns, declarations)
    sample = joined.cells if joined else first.cells
    per_box = joined.join.per_box if joined else frozenset()
    _check_images(content, sample, images, declarations)
    _check_quotes(content, sample)
    taken = [*_find_stand_ins(options, declarations, sample)]
    declarations = _replace_columns(declarations, taken)
    _check_names(options, declarations)
    features = tuple(
        _open_column(content, name, declaration, sample[name], per_box=name in per_box)
        for name, declaration in declarations.items()
    )
    folder = _common_folder(content.files, "tables")
    split_source = _find_split_source(content, folder)
    base = f"{options.image_root.rstrip('/')}/" if options.image_root else ""
    guessed_root = ""
    if not base:
        guessed_root = base = _guess_image_root(content, folder, sample, read)
    root = base or folder
    if options.uri_column and not base:
        root = _common_root(folder, sample[options.uri_column])
    image_folders = _find_image_folders(content, folder, base, read)
    labels = sample.get(options.label_column, ())
    has_lists = any(isinstance(cell, list) for cell in labels)
    has_boxes = any(feature.per_box for feature in features)
    names = [*_split_all(labels, options.label_separator, in_text=has_boxes)]
    label_names = NameColumn()
    if not content.class_names:
        label_names = NameColumn.infer(names, known=classes or ())
    return Tables(
        files=content.files,
        options=options.restricted_to(TableOptions),
        splits=options.splits,
        split_role=split_source.role,
        classes=classes,
        folder=folder,
        root=root,
        base=base,
        image_folders=image_folders,
        multi_label=bool(options.label_separator) or has_lists or has_boxes,
        features=features,
        read_rows=functools.partial(joined.join.read, read_rows=read) if joined else read,
        label_names=label_names,
        key_names=NameColumn.infer(sample.get(options.key_column, ())),
        one_row_each=first.one_row_each,
        joins_rows=joined is not None,
        repeat_cure=_find_repeat_cure(content, joined),
        warnings=(
            *content.warnings,
            *_shorten_notes(notes),
            *([stand_in.notice for stand_in in taken] or _warn_of_uncertainty(content, sample)),
            *(describe_join(joined.join, first, options.label_column) if joined else ()),
            *split_source.warnings,
            *filter(None, [describe_image_root(guessed_root, folder)]),
            *filter(None, [describe_image_folders(image_folders)]),
            *_warn_of_names(sample.get(options.uri_column, ()), base or folder),
            *_warn_of_unlabelled(content, sample.get(options.uri_column, ()), base),
            *warn_of_coordinates(options, features),
            *label_names.warn(options.label_column, names),
            *warn_of_unused_columns(content, declarations),
            *warn_of_numbers_as_classes(options, names, len(labels)),
            *warn_of_texts(features, declarations, sample),
        ),
    )


def _warn_of_unlabelled(content: TableContent, names: Sequence[Any], base: str) -> Iterator[str]:
    """Warns of images without annotations, if each table is about one image."""
    is_dataset = content.read_rows is not None
    if not is_dataset and format_of(content.files[0]).of_one_image:
        yield from filter(None, [describe_unlabelled(content.files, names, base)])


def _plan_join(content: TableContent, declarations: Mapping[str, str]) -> RowJoin | None:
    """How rows would be joined if those of one image are; None if there is nothing to join.

    Args:
        content: what the tables say.
        declarations: column -> declaration; empty where the rows have to show it.
    """
    options = content.options
    features = parse_columns(declarations)
    boxes = find_boxes(features)
    may_join = content.read_rows is None and format_of(content.files[0]).may_have_box_rows
    if boxes is None or not options.uri_column or not may_join:
        return None
    per_box = {feature.name for feature in features if feature.per_box and feature is not boxes}
    if options.label_column:
        per_box.add(options.label_column)
    sources = {}
    if boxes.columns:
        sizes = find_size_columns(content.columns, boxes.columns)
        sources = {name: column for name, column in sizes.items() if name not in content.columns}
    return RowJoin(
        key=options.uri_column,
        box=boxes.name,
        sides=boxes.columns,
        per_box=frozenset(per_box),
        sources=sources,
    )


def _join_sample(
    join: RowJoin | None,
    first: FirstRows,
    columns: Sequence[str],
    declarations: Mapping[str, str],
) -> JoinedRows | None:
    """Joins the first rows, if those of one image are joined.

    Args:
        join: how they would be.
        first: the first rows.
        columns: those that are wanted.
        declarations: column -> declaration; empty where the rows have to show it.
    """
    join = join and find_join(join, first)
    if join is None:
        return None
    undeclared = [name for name, declaration in declarations.items() if not declaration]
    return join_first_rows(join, first, columns, undeclared)


def _find_repeat_cure(content: TableContent, joined: JoinedRows | None) -> str:
    """What to do about a file with several rows; empty if nothing is known."""
    if joined:
        return "name a file in the same way in all of its rows, and have them in one table"
    found = find_box_columns(content.columns)
    if found:
        return f"if each row is a box, declare it: `feature_columns='{BOX}:{found.declaration}'`"
    places = [*filter(PLACES.fullmatch, content.columns)]
    if places:
        return (
            f"if each row is a box, declare it, such as `feature_columns='{places[0]}:bbox[xywh]'`"
        )
    return ""


def _shorten_notes(notes: Sequence[str]) -> Iterator[str]:
    """Yields the first notes about tables, and how many more there are."""
    yield from notes[:MOST_NOTES]
    if len(notes) > MOST_NOTES:
        yield f"there are {len(notes) - MOST_NOTES} more such notes about the first tables"


def _split_all(cells: Iterable[Any], separator: str, *, in_text: bool) -> Iterator[Any]:
    """Yields the classes in cells; see `split_labels`."""
    for cell in cells:
        yield from split_labels(cell, separator, in_text=in_text)


def _row_reader(content: TableContent, images: Sequence[str], **others: Any) -> RowReader:
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
        na_values=options.na_values,
        **others,
    )


def _find_split_source(content: TableContent, folder: str) -> SplitSource:
    """Where splits come from if no option says it; `folder` is that of all tables."""
    if content.options.splits or content.options.split_column:
        return SplitSource()
    if content.read_rows:
        warning = f"all rows go to train: `split_column={SPLIT}` keeps the splits of the dataset"
        return SplitSource(warnings=(warning,))
    return choose_split_source(content.files, folder)


def _guess_image_root(
    content: TableContent, folder: str, sample: Mapping[str, Sequence[Any]], read: RowReader
) -> str:
    """The folder of images beside that of the tables; see `guess_image_root`."""
    uri_column = content.options.uri_column
    if not uri_column or content.read_rows:
        return ""
    return guess_image_root(
        content.files,
        folder=folder,
        first_uris=sample[uri_column],
        read_uris=_uri_reader(uri_column, read),
    )


def _find_image_folders(
    content: TableContent, folder: str, base: str, read: RowReader
) -> frozenset[ImageFolder]:
    """The folders of images that are named like their tables; see `find_image_folders`."""
    uri_column = content.options.uri_column
    if not uri_column or content.read_rows:
        return frozenset()
    read_uris = _uri_reader(uri_column, read)
    return find_image_folders(content.files, folder=folder, base=base, read_uris=read_uris)


def _uri_reader(uri_column: str, read: RowReader) -> Callable[[str], Iterator[Any]]:
    """The function that yields the paths of images in a table."""

    def read_uris(path: str) -> Iterator[Any]:
        with contextlib.suppress(DamagedTableError):  # of which reading the rows tells
            for _, cells in read(path, [uri_column], UNCOUNTED):
                yield cells[0]

    return read_uris


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
        boxes = find_boxes(parse_columns(declarations))
        sides = boxes.columns if boxes else ()
        left_out = {*options.roles, *optional_columns(content.files[0]), *sides}
        for name in content.columns:
            if name not in left_out:
                declarations.setdefault(name, "")
    return declarations


def _check_declarations(content: TableContent, declarations: Mapping[str, str]) -> None:
    """Checks that the first table has the columns that are wanted, and not too many.

    Raises:
        UsageError: it does not.
        DataError: it cannot be read.
    """
    path = content.files[0]
    columns = [*content.options.roles, *declarations]
    join = _plan_join(content, declarations)
    if join:
        columns = join.read_columns(columns)
    try:
        check_columns(path, content.columns, columns)
    except UsageError:
        if isinstance(format_of(path), ObjectFormat):
            next(read_rows(path, ()), None)  # which tells more if the file is of another kind
        raise
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
    read: RowReader,
    columns: Sequence[str],
) -> FirstRows:
    """Reads the first rows.

    Raises:
        UsageError: there are no rows.
        DataError: a table is damaged, and tables are more than a row each.
    """
    rows = list[tuple[int, Row]]()
    damage: DamagedTableError | None = None
    one_row_each = len(content.files) > 1
    room = SAMPLE_BYTES
    for table, path in enumerate(content.files[:SAMPLE_TABLES]):
        number_before = len(rows)
        most = SAMPLE_ROWS - number_before
        try:
            for row in itertools.islice(read(path, columns, UNCOUNTED), most):
                rows.append((table, row))
                room -= sum(len(cell) for cell in row[1] if isinstance(cell, bytes))
                if room <= 0:
                    break
        except DamagedTableError as error:
            damage = damage or error
        one_row_each = one_row_each and len(rows) - number_before <= 1
        if damage and not one_row_each:
            raise damage
        if len(rows) >= SAMPLE_ROWS or room <= 0:
            break
    if damage and not rows:
        raise damage
    if not rows or not columns:
        raise table_error(" ".join(content.options.table), "there are no rows")
    return FirstRows(columns, rows, one_row_each)


def _warn_of_uncertainty(
    content: TableContent, sample: Mapping[str, Sequence[Any]]
) -> Iterator[str]:
    """Yields a line about what the first rows of annotations do not show."""
    uncertainty = describe_uncertainty(content.files[0], sample)
    if uncertainty:
        yield uncertainty


def _find_stand_ins(
    options: ConvertOptions, names: Iterable[str], sample: Mapping[str, Sequence[Any]]
) -> Iterator[_StandIn]:
    """Yields the columns that replace others, as cells in the first rows say."""
    for name in names:
        for number, cell in enumerate(sample[name]):
            if isinstance(cell, OtherColumn):
                place = sample[options.uri_column][number] if options.uri_column else "row 1"
                yield _StandIn(name, cell.column, f"{place}: {cell.notice}")
                break


def _replace_columns(
    declarations: Mapping[str, str], stand_ins: Iterable[_StandIn]
) -> dict[str, str]:
    """The declarations of columns, some of which others replace."""
    replaced = {stand_in.name: stand_in.column for stand_in in stand_ins}
    return {replaced.get(name, name): text for name, text in declarations.items()}


def _check_images(
    content: TableContent,
    sample: Mapping[str, Sequence[Any]],
    images: Sequence[str],
    declarations: Mapping[str, str],
) -> None:
    """Checks that the column of images holds any, and columns of other kinds none.

    Args:
        content: what the tables say.
        sample: column -> its cells in the first rows.
        images: the columns of images.
        declarations: column that becomes a feature -> its declaration, which may be empty.

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
    are_samples = may_hold_images(path)
    for name, cells in sample.items():
        if name in images:
            continue
        cure = (
            f"name it as `uri_column={name}`, or as `feature_columns={name}:pair` beside another, "
            "or leave it out"
        )
        if _holds(storage.Entry, cells[0]):
            raise table_error(path, f"column {name!r} holds images; {cure}")
        if are_samples and not declarations.get(name) and _holds(bytes, cells[0]):
            raise table_error(
                path,
                f"column {name!r} holds images, or other bytes that are no text; {cure}; "
                f"`feature_columns={name}:bytes` stores the bytes as they are",
            )


def _check_quotes(content: TableContent, sample: Mapping[str, Sequence[Any]]) -> None:
    """Checks that paths, classes and splits are not in single quotes, which mean nothing in CSV.

    Raises:
        UsageError: one of the first rows has some.
    """
    for name in content.options.roles:
        for cell in sample[name]:
            if isinstance(cell, str) and len(cell) > 1 and cell[0] == cell[-1] == "'":
                raise table_error(
                    content.files[0],
                    f"column {name!r} has values in single quotes, such as {cell:.100}, which "
                    "would be part of them; save the table with double quotes, or without any",
                )


def _holds(kind: type, cell: Any) -> bool:
    """Whether a cell is of a type, or has a member of it."""
    parts = cell if isinstance(cell, list) else [cell]
    return any(isinstance(part, kind) for part in parts)


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


class FoundTables(NamedTuple):
    """The tables that match patterns.

    Attributes:
        files: their paths, sorted, each once.
        warnings: about folders that match too.
    """

    files: tuple[str, ...]
    warnings: Sequence[str]


def find_tables(patterns: Sequence[str]) -> FoundTables:
    """Lists the tables that match the patterns.

    Raises:
        UsageError: a pattern matches no file, or one that cannot be a table.
    """
    found = FoundFolders()
    paths = set[str]()
    markers = set[str]()
    for pattern in patterns:
        for entry in match_files([(pattern, ())], option="table", skipped=found):
            is_marker = is_wild(pattern) and _is_marker(entry.path, pattern)
            (markers if is_marker else paths).add(entry.path)
    files = tuple(sorted(paths))
    if not files:
        raise table_error(" ".join(patterns), f"matches only {join_texts(sorted(markers))}")
    for path in files:
        format_of(path)  # raises an error if it cannot be a table
    warnings = [*_warn_of_folders(found.folders)]
    if markers:
        texts = join_texts(sorted(markers))
        warnings.append(f"files that systems make beside tables are skipped: {texts}")
    return FoundTables(files, warnings)


def _is_marker(path: str, pattern: str) -> bool:
    """Whether a file that matches a pattern is one that systems make beside tables.

    Such as `._train.parquet`, `.part-0.parquet.crc` and `_SUCCESS`, which says that a job ended.
    """
    below = path[len(literal_start(pattern).rpartition("/")[0]) :]
    name = path.rpartition("/")[2]
    return is_junk(below) or (name.startswith("_") and not has_table_name(path))


def _warn_of_folders(folders: Iterable[str]) -> Iterator[str]:
    """Yields a warning about folders that are named like tables."""
    named_so = [folder for folder in sorted(folders) if has_table_name(folder)]
    if named_so:
        yield f"folders are no tables, and are skipped: {join_texts(named_so)}"


def _open_column(
    content: TableContent,
    name: str,
    declaration: str,
    cells: Sequence[Any],
    *,
    per_box: bool = False,
) -> ColumnKind:
    """The feature that a column becomes.

    Args:
        content: what the tables say.
        name: of the column.
        declaration: of the column; empty if its cells have to show it.
        cells: those of the first rows.
        per_box: whether they have a list with a value for each box.

    Raises:
        UsageError: no kind of feature fits the cells, or none of them fits the declaration.
    """
    path = content.files[0]
    choice = "or name the columns that become features"
    try:
        if not declaration:
            typed = format_of(path).has_types
            values = itertools.chain.from_iterable(cells) if per_box else cells
            declaration = infer_declaration(values, typed=typed) + ("[box]" if per_box else "")
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
        cure = f"; give another type, `feature_columns={name}:TYPE`, {choice}"
        if _is_bad(cells[0]):
            cure = ""  # no type helps
        raise table_error(
            path,
            f"column {name!r} as {feature.text} would reject all of the first {len(cells)} rows "
            f"(row 1: {_find_problem(feature, cells[0])}){cure}",
        )
    return feature


def _is_bad(cell: Any) -> bool:
    """Whether a cell, or a member of it, has no value of any type."""
    members = cell if isinstance(cell, list) else [cell]
    return any(isinstance(member, BadCell) for member in members)


def _find_problem(feature: ColumnKind, cell: Any) -> str:
    """Why a cell does not fit a feature; empty if it does."""
    try:
        feature.parse(cell)
    except ValueError as error:
        return str(error)
    return ""


def _warn_of_names(cells: Iterable[Any], base: str) -> Iterator[str]:
    """Yields a line about paths and names of images that are not those of their files."""
    finder = ImageFinder()
    for cell in cells:
        if not isinstance(cell, str):
            continue
        with contextlib.suppress(ValueError):
            written = resolve_path(cell, base)
            path = finder.find(cell, base)
            if path != written:
                yield (
                    "where no file is at the path that is written, one with other slashes or "
                    "spaces, with its stem, or without the folders before it, is taken, such as "
                    f"{path.removeprefix(base)} for {cell}"
                )
                return


def _common_root(folder: str, uris: Sequence[Any]) -> str:
    """The folder that the paths of the first rows share.

    If a path is relative, the folder of the tables.

    A later row outside this folder is a reject, so the number of rows read here never changes the
    keys.
    """
    paths = []
    for uri in uris:
        try:
            path = resolve_path(uri, folder)
        except ValueError:
            continue
        if not is_absolute(read_path(uri)):
            return folder
        if isinstance(uri, ImageName) and not storage.find(path):
            return folder  # a path on another machine
        paths.append(path)
    if not paths:
        return folder
    remote = [path for path in paths if storage.is_gcs(path)]
    local = [path for path in paths if not storage.is_gcs(path)]
    if len(remote) != len(local):  # else nothing says which of them are astray
        paths = max(remote, local, key=len)
    return _common_folder(paths, "the files that its rows name")


def _common_folder(paths: Sequence[str], noun: str) -> str:
    return common_folder([folder_of(path)[:-1] for path in paths], option="table", noun=noun)
