"""Finds the columns of tables that become features, from options or the first rows."""

import itertools
import json
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

from beam_tfr.features.base import ColumnKind
from beam_tfr.features.cells import BadCell, UntypedCellError, members_of
from beam_tfr.features.companions import READER_KEYS
from beam_tfr.features.features_dict import FeaturesDict
from beam_tfr.features.inference import infer_declaration
from beam_tfr.features.registry import find_boxes, parse_column, parse_columns
from beam_tfr.options import ConvertOptions
from beam_tfr.options.implied import (
    KNOWN,
    optional_columns,
)
from beam_tfr.schema.errors import UsageError
from beam_tfr.schema.feature_names import MAX_FEATURES, SOURCE_SIDES
from beam_tfr.schema.spelling import spell_option
from beam_tfr.tables.base import (
    ObjectFormat,
    check_columns,
    table_error,
)
from beam_tfr.tables.box_names import find_size_columns
from beam_tfr.tables.content import (
    TableContent,
)
from beam_tfr.tables.formats import format_of, list_fields, read_rows
from beam_tfr.tables.joining import BoxJoin, ClassJoin, RowJoin
from beam_tfr.tables.several_classes import find_presence_column
from beam_tfr.tables.suggested_roles import suggest_roles
from beam_tfr.tables.unused.boxes import cure_box_field

FIELD_ROWS = 10_000  # first rows that are searched for fields of objects
_COMMA_PROBLEM = re.compile("'[+-]?[0-9]+,[0-9]+' is not a number")
_CHOICE = "or choose the columns that become features"


def takes_all(options: ConvertOptions) -> bool:
    """Whether all columns without a role become features."""
    if options.feature_columns is None:
        return not options.uri_column
    return KNOWN in options.feature_columns


def declare_columns(content: TableContent) -> dict[str, str]:
    """Returns column -> declaration for columns that become features.

    A declaration is empty if the rows determine the type.
    """
    options = content.options
    declarations = dict(options.feature_columns or {})
    if takes_all(options):
        declarations.pop(KNOWN, None)
        boxes = find_boxes(parse_columns(declarations))
        sides = boxes.columns if boxes else ()
        fields = [name for name in [*options.roles, *declarations] if name not in content.columns]
        with_fields = {name.partition(".")[0] for name in fields}
        left_out = {*options.roles, *optional_columns(content.files[0]), *sides, *with_fields}
        for name in content.columns:
            if name not in left_out:
                declarations.setdefault(name, "")
    return declarations


def plan_join(content: TableContent, declarations: Mapping[str, str]) -> RowJoin | None:
    """Plans how to join rows about the same image; None if there is nothing to join.

    Args:
        content: the findings about the tables.
        declarations: column -> declaration, or an empty string if the rows determine the type.
    """
    options = content.options
    may_join = content.table_format.may_have_box_rows
    if not options.uri_column or not may_join:
        return None
    features = parse_columns(declarations)
    boxes = find_boxes(features)
    if boxes is None:
        return _plan_class_join(content)
    per_box = {feature.name for feature in features if feature.per_box and feature is not boxes}
    if options.label_column:
        per_box.add(options.label_column)
    sources = {}
    if boxes.columns:
        sizes = find_size_columns(content.columns, boxes.columns)
        sources = {name: column for name, column in sizes.items() if name not in content.columns}
    return BoxJoin(
        key=options.uri_column,
        box=boxes.name,
        sides=boxes.columns,
        per_box=frozenset(per_box),
        label=options.label_column,
        sources=sources,
    )


def _plan_class_join(content: TableContent) -> ClassJoin | None:
    """Plans how to join rows with one class each; None if each image has a single class."""
    options = content.options
    if not options.label_separator:
        return None
    return ClassJoin(
        key=options.uri_column,
        label=options.label_column,
        separator=options.label_separator,
        presence=find_presence_column(content.columns),
    )


def check_declarations(content: TableContent, declarations: Mapping[str, str]) -> None:
    """Checks that the first table has the chosen columns, and not too many of them.

    Raises:
        UsageError: a column is missing, there are too many, or options need boxes that are missing.
        DataError: the table cannot be read.
    """
    if find_boxes(parse_columns(declarations)) is None:
        content.options.refuse_box_options()
    path = content.files[0]
    columns = [*content.options.roles, *declarations]
    join = plan_join(content, declarations)
    if join:
        columns = join.read_columns(columns)
    try:
        _check_present(content, columns)
    except UsageError:
        if isinstance(format_of(path), ObjectFormat):
            next(read_rows(path, ()), None)  # its error is clearer if the file is of another kind
        raise
    if len(declarations) + len(_reserved_names(content.options)) > MAX_FEATURES:
        raise table_error(
            path,
            f"{len(declarations):,} columns would become features, but readers accept "
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


def _check_present(content: TableContent, columns: Sequence[str]) -> None:
    """Checks that the first table has the columns, or the fields of objects in columns.

    Raises:
        UsageError: a column or field is missing.
        DataError: the table cannot be read.
    """
    path = content.files[0]
    present = content.columns
    missing = {*columns}.difference(present)
    may_be_fields = any("." in name for name in missing)
    if may_be_fields and not content.read_rows:
        present = [*present, *list_fields(path, FIELD_ROWS)]
    check_columns(path, present, columns, is_single=len(content.files) == 1)


def _check_names(content: TableContent, names: Iterable[str]) -> None:
    """Checks that no column has the name of a feature that records or readers always have.

    Raises:
        UsageError: a column has such a name.
    """
    options = content.options
    reserved = _reserved_names(options)
    for name in names:
        if name not in reserved:
            continue
        cure = "rename the column"
        if not options.uri_column:
            cure += f", or, if it names images, give {spell_option('uri_column', name)}"
        problem = f"records or readers already have a feature with this name; {cure}"
        if name in (options.feature_columns or ()):
            raise UsageError(problem, option="feature_columns", value=name)
        raise table_error(content.files[0], f"column {name!r}: {problem}")


def _reserved_names(options: ConvertOptions) -> set[str]:
    """Returns names that columns must not have because records or readers have such features."""
    features = FeaturesDict.from_options(
        {"encoding": options.encoding, "feature_columns": options.feature_columns}, labelled=True
    )
    reserved = {*READER_KEYS, *features.fixed}
    if features.boxes:
        reserved -= {*SOURCE_SIDES}  # a table may have columns with these names
    for kind in features.kinds:
        reserved |= kind.reserved
    return reserved


def open_columns(
    content: TableContent,
    declarations: Mapping[str, str],
    sample: Mapping[str, Sequence[Any]],
    per_box: Collection[str],
) -> tuple[ColumnKind, ...]:
    """Returns the features that columns become.

    Args:
        content: the findings about the tables.
        declarations: column -> declaration, or an empty string if the cells determine the type.
        sample: column -> its cells in the first rows.
        per_box: columns whose cells are lists, with a value for each box.

    Raises:
        UsageError: no kind of feature can hold the cells, no cell matches its declaration, or
            records or readers have a feature with the name of a column.
    """
    _check_names(content, declarations)
    return tuple(
        _open_column(content, name, declaration, sample[name], per_box=name in per_box)
        for name, declaration in declarations.items()
    )


def _open_column(
    content: TableContent,
    name: str,
    declaration: str,
    cells: Sequence[Any],
    *,
    per_box: bool = False,
) -> ColumnKind:
    """Returns the feature that a column becomes.

    Args:
        content: the findings about the tables.
        name: the name of the column.
        declaration: the declaration of the column; an empty string if its cells determine the type.
        cells: the cells in the first rows.
        per_box: whether each cell is a list with a value for each box.

    Raises:
        UsageError: no kind of feature can hold the cells, or no cell matches the declaration.
    """
    feature = _parse_or_infer(content, name, declaration, cells, per_box=per_box)
    may_be_bad = feature.may_be_bad and content.options.box_policy.drop_bad
    if feature.holds_files or may_be_bad:
        return feature
    if all(_find_problem(feature, cell) for cell in cells):
        problem = _find_problem(feature, cells[0])
        raise table_error(
            content.files[0],
            f"column {name!r} as {feature.text} would reject all of the first {len(cells)} rows "
            f"(row 1: {problem}){_suggest_type(feature, cells[0], problem)}",
        )
    return feature


def _parse_or_infer(
    content: TableContent,
    name: str,
    declaration: str,
    cells: Sequence[Any],
    *,
    per_box: bool,
) -> ColumnKind:
    """Returns the feature for a column, from its declaration or, if there is none, its cells.

    For the arguments, see `_open_column`.

    Raises:
        UsageError: no kind of feature can hold the cells.
    """
    path = content.files[0]
    try:
        if not declaration:
            typed = format_of(path).has_types
            values = itertools.chain.from_iterable(cells) if per_box else cells
            declaration = infer_declaration(values, typed=typed) + ("[box]" if per_box else "")
        return parse_column(name, declaration)
    except ValueError as error:
        others = f"{KNOWN}," if takes_all(content.options) else ""
        boxes = cure_box_field(content, [name])
        as_text = spell_option("feature_columns", f"{others}{name}:bytes")
        raise table_error(
            path,
            f"column {name!r} {error} in the first rows, so it cannot be a feature; "
            f"{_suggest_images(content)}{boxes and f'{boxes}; '}{as_text} stores it as text; "
            f"{_CHOICE}",
        ) from None


def _suggest_type(feature: ColumnKind, cell: Any, problem: ValueError | None) -> str:
    """Suggests what to do if none of the first cells match a feature, or returns an empty string.

    Args:
        feature: the feature that the column was to become.
        cell: the first cell of the column.
        problem: why that cell does not match.
    """
    if "%" in str(problem):
        return (
            "; write fractions of 1 instead of percentages (boxes of fractions have types such as "
            "bbox[rel_xyxy]); with pandas: table[NAME].str.rstrip('%').astype(float) / 100"
        )
    if _COMMA_PROBLEM.search(str(problem)):
        boxes = find_boxes([feature])
        columns = (boxes.columns if boxes else ()) or (feature.name,)
        cells = f"table[{json.dumps(columns, ensure_ascii=False)}]"
        return (
            "; write numbers with a decimal point; with pandas, if commas are decimal points: "
            f"{cells} = {cells}.replace(',', '.', regex=True)"
        )
    if _is_bad(cell) or isinstance(problem, UntypedCellError):
        return ""
    cure = (
        f"; give another type, {spell_option('feature_columns', f'{feature.name}:TYPE')}, {_CHOICE}"
    )
    if feature.may_be_bad:
        cure += ", or leave out boxes without area with `bad_boxes=drop`"
    return cure


def _suggest_images(content: TableContent) -> str:
    """Suggests options for rows about images, or returns an empty string if `uri_column` is set."""
    if content.options.uri_column:
        return ""
    roles = suggest_roles(content) or "`uri_column=` with the column of image paths"
    return f"if rows are about images, give {roles}; "


def _is_bad(cell: Any) -> bool:
    """Whether a cell, or one of its members, is a `BadCell`, which no type fits."""
    members = members_of(cell)
    return any(isinstance(member, BadCell) for member in members)


def _find_problem(feature: ColumnKind, cell: Any) -> ValueError | None:
    """Says why a cell does not match a feature; None if it does."""
    try:
        feature.parse(cell)
    except ValueError as error:
        return error
    return None
