"""Opens tables: the first rows show what columns hold, and where images and splits are."""

import contextlib
import itertools
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any

from beam_tfr.features.registry import parse_columns
from beam_tfr.options import ConvertOptions
from beam_tfr.options.tabular import TableOptions
from beam_tfr.schema.spelling import spell_option
from beam_tfr.tables.annotations import describe_doubts
from beam_tfr.tables.annotations.unused_classes import describe_unused_classes
from beam_tfr.tables.box_checks import check_shares, warn_of_centers
from beam_tfr.tables.box_names import BOX, find_possible_boxes
from beam_tfr.tables.box_shares import guess_form, join_sides
from beam_tfr.tables.class_orders import warn_of_class_orders
from beam_tfr.tables.content import SPLIT, TableContent
from beam_tfr.tables.coordinates import names_boxes, names_places
from beam_tfr.tables.declarations import (
    check_declarations,
    declare_columns,
    open_columns,
    takes_all,
)
from beam_tfr.tables.doubts import (
    warn_of_coordinates,
    warn_of_folders,
    warn_of_ignored_orientation,
    warn_of_images,
    warn_of_numbers_as_classes,
    warn_of_paths_as_classes,
    warn_of_texts,
)
from beam_tfr.tables.first_rows import (
    Sample,
    StandIn,
    check_images,
    check_quotes,
    find_stand_ins,
    first_notes,
    replace_columns,
    row_reader,
    take_sample,
)
from beam_tfr.tables.foreign_paths import spread
from beam_tfr.tables.group_columns import warn_of_groups
from beam_tfr.tables.image_roots import ImageRoots, find_image_roots, paths_below_root
from beam_tfr.tables.label_numbers import warn_of_other_ids
from beam_tfr.tables.names import NameColumn, describe_spaces
from beam_tfr.tables.numbered_names import NumberedNames, find_numbered_names, read_labels
from beam_tfr.tables.paths import spell_number
from beam_tfr.tables.places import describe_image_places
from beam_tfr.tables.roles import OneSplit, split_labels
from beam_tfr.tables.rounded_numbers import warn_of_equal_numbers, warn_of_rounded_numbers
from beam_tfr.tables.rows import Tables
from beam_tfr.tables.several_classes import (
    check_classes,
    warn_of_rows_of_classes,
    warn_of_several_classes,
)
from beam_tfr.tables.shortened_numbers import warn_of_shortened
from beam_tfr.tables.split_columns import (
    describe_other_columns,
    describe_split_feature,
    find_other_columns,
    find_split_column,
    imply_split_column,
    warn_of_splits,
)
from beam_tfr.tables.split_sources import SplitSource, choose_split_source, describe_splits
from beam_tfr.tables.suggested_roles import warn_of_class_numbers
from beam_tfr.tables.unused.beside_boxes import warn_beside_boxes
from beam_tfr.tables.unused.columns import warn_of_unused_columns
from beam_tfr.tables.unused.exports import warn_of_rows_of_regions
from beam_tfr.tables.unused.later_tables import warn_of_later_tables
from beam_tfr.tables.unused.pixels import warn_of_pixels
from beam_tfr.tables.unused.suggestions import read_first_cells
from beam_tfr.tables.unused.turned_boxes import warn_of_turned_boxes

_MOST_CLASS_TEXTS = 1_000_000  # first classes that show whether all are numbers
_MOST_IMAGES = 1_000  # images whose folders are examined


def open_tables(
    content: TableContent,
    classes: Sequence[str] | None = None,
    *,
    may_number: bool = True,
    first_number: int | None = None,
) -> Tables:
    """Opens tables, and reads up to `first_rows.SAMPLE_ROWS` rows.

    Args:
        content: the result of `find_content`.
        classes: the allowed classes, in order, or None for any.
        may_number: whether numeric labels may be numbers of these classes.
        first_number: the number of the first class; None if unknown.

    Raises:
        UsageError: a column is missing, has a reserved name, has no type, or has a type that none
            of the first rows match.
        DataError: a table is damaged, unless every table has a single row and other tables can be
            read.
    """
    declarations = declare_columns(content)
    check_declarations(content, declarations)
    images = _image_columns(content.options, declarations)
    content, sample = _take_first_rows(content, declarations, images)
    options = content.options
    cells = sample.cells
    check_images(content, cells, images, declarations)
    check_quotes(content, cells)
    stand_ins = [*find_stand_ins(options, declarations, cells)]
    declarations = replace_columns(declarations, stand_ins)
    check_shares(content, declarations, cells)
    features = open_columns(content, declarations, cells, sample.per_box)
    typed = content.table_format.has_types
    has_boxes = any(feature.per_box for feature in features)
    labels = cells.get(options.label_column, ())
    if not has_boxes:
        check_classes(content.files[0], options, labels)
    all_texts = _split_all(labels, options.label_separator, in_text=has_boxes)
    class_texts = [*itertools.islice(all_texts, _MOST_CLASS_TEXTS)]
    label_names = NameColumn()
    if not content.class_names:
        label_names = NameColumn.infer(class_texts, known=classes or ())
    numbered = NumberedNames()
    if classes and may_number:
        numbered = _number_names(options, class_texts, label_names, classes, first_number)
        classes = [*numbered.name_of] or classes
    box_cure = "" if has_boxes else _suggest_boxes(content)
    read = row_reader(content, images)
    uris = cells.get(options.uri_column, ())
    numbered_uris = _number_uris(options, sample)
    roots = find_image_roots(content, numbered_uris, read)
    image_paths = paths_below_root(spread(uris, _MOST_IMAGES), roots)
    split_columns = find_other_columns(content)
    splits = _find_split_source(content, roots, image_paths, split_columns)
    return Tables(
        files=content.files,
        options=options.restricted_to(TableOptions),
        splits=options.shares,
        stratify=options.stratify,
        split_role=splits.role,
        classes=None if classes is None else frozenset(classes),
        numbered_names=numbered.name_of,
        folder=roots.folder,
        root=roots.root,
        base=roots.base,
        image_folders=roots.image_folders,
        prefix=roots.prefix,
        ignores_case=roots.ignores_case,
        parts=roots.parts,
        missing=roots.missing,
        multi_label=bool(options.label_separator) or has_boxes or _hold_lists(labels),
        features=features,
        read_rows=sample.reader(read),
        label_names=label_names,
        key_names=NameColumn.infer_keys(cells.get(options.key_column, ())),
        one_row_each=sample.first.one_row_each,
        joins_rows=sample.joined is not None,
        box_cure=box_cure,
        warnings=(
            *content.warnings,
            *sample.warn(),
            *_warn_of_unused_classes(content, sample, are_given=classes is not None),
            *_warn_of_rows_of_classes(content, sample, box_cure, has_boxes=has_boxes),
            *_warn_of_stand_ins(content, cells, stand_ins),
            *splits.warnings,
            *_warn_of_spaces(options, cells),
            *_warn_of_shortened(options, roots, cells),
            *describe_other_columns(content, split_columns),
            *warn_of_splits(options.split_column, cells.get(options.split_column, ())),
            *roots.warnings,
            *warn_of_centers(content, declarations, cells),
            *warn_of_coordinates(options, features),
            *warn_of_ignored_orientation(options, features),
            *filter(None, [numbered.warning]),
            *label_names.warn(options.label_column, class_texts),
            *warn_of_other_ids(content, class_texts),
            *warn_of_class_orders(content),
            *warn_of_class_numbers(content, labels),
            *warn_beside_boxes(content),
            *warn_of_turned_boxes(content, features),
            *warn_of_unused_columns(content),
            *warn_of_rows_of_regions(content),
            *warn_of_pixels(content, cells),
            *warn_of_later_tables(content),
            *_warn_of_split_feature(content),
            *warn_of_folders(content, image_paths),
            *warn_of_groups(content, image_paths),
            *warn_of_images(content, cells),
            *warn_of_numbers_as_classes(options, class_texts, len(labels)),
            *warn_of_paths_as_classes(options, class_texts),
            *warn_of_several_classes(options, class_texts),
            *first_notes([*warn_of_texts(features, declarations, cells, typed=typed)]),
            *warn_of_rounded_numbers(options, features, declarations, cells, typed=typed),
            *warn_of_equal_numbers(options, features, declarations, cells),
        ),
    )


def _take_first_rows(
    content: TableContent, declarations: Mapping[str, str], images: Sequence[str]
) -> tuple[TableContent, Sample]:
    """Returns the content, with the column of splits if there is one, and the first rows.

    Args:
        content: the findings about the tables.
        declarations: the declarations of the columns that become features.
        images: the columns of images.
    """
    split_column = _find_split_column(content)
    sample = take_sample(content, declarations, images, split_column)
    if not split_column:
        return content, sample
    split_cells = [cell for _, cell in sample.first.column(split_column)]
    return imply_split_column(content, split_column, split_cells), sample


def _number_uris(options: ConvertOptions, sample: Sample) -> list[tuple[int, Any]]:
    """Returns the first cells with images, each with the number of its table."""
    if not options.uri_column:
        return []
    return [(number, spell_number(uri)) for number, uri in sample.first.column(options.uri_column)]


def _number_names(
    options: ConvertOptions,
    class_texts: Sequence[Any],
    label_names: NameColumn,
    classes: Sequence[str],
    first_number: int | None,
) -> NumberedNames:
    """Returns the names of labels that are class numbers, or no names if labels are names.

    Args:
        options: the options of the conversion.
        class_texts: the classes in the first rows, as spelled in cells.
        label_names: reads the classes.
        classes: the allowed classes, in order.
        first_number: the number of the first class; None if unknown.
    """
    if options.rename:
        return NumberedNames()
    subject = f"column {options.label_column!r}"
    labels = read_labels(class_texts, label_names)
    return find_numbered_names(subject, labels, classes, first_number=first_number)


def _find_split_column(content: TableContent) -> str:
    """Finds the column that may hold the split of each row, or returns an empty string."""
    if content.read_rows or takes_all(content.options):
        return ""
    return find_split_column(content)


def _suggest_boxes(content: TableContent) -> str:
    """Says how to declare boxes that rows may hold, or returns an empty string."""
    if not content.table_format.may_have_box_rows:
        return ""
    found = find_possible_boxes(content.columns)
    if found:
        cells = read_first_cells(content, found.sides)
        found = found._replace(form=guess_form(found.form, join_sides(cells.values())))
        return (
            "if each row is a box, declare it: "
            f"{spell_option('feature_columns', f'{BOX}:{found.declaration}')}"
        )
    boxes = next(filter(names_boxes, content.columns), "")
    if boxes:
        return (
            "if each row is a box, declare it, such as "
            f"{spell_option('feature_columns', f'{boxes}:bbox[xywh]')}"
        )
    if any(map(names_places, content.columns)):
        return (
            "if each row is a box, declare its four columns, such as "
            f"{spell_option('feature_columns', f'{BOX}:bbox[xywh]=LEFT+TOP+WIDTH+HEIGHT')}"
        )
    return ""


def _warn_of_unused_classes(
    content: TableContent, sample: Sample, *, are_given: bool
) -> Iterator[str]:
    """Yields a line about classes that no annotation has, unless an option names all classes."""
    if not (are_given or content.class_names):
        yield from describe_unused_classes(sample.find_classes(), len(content.files))


def _warn_of_rows_of_classes(
    content: TableContent, sample: Sample, box_cure: str, *, has_boxes: bool
) -> Iterator[str]:
    """Yields warnings about rows with one class each, unless the rows have boxes."""
    options = content.options
    if sample.joined or has_boxes or box_cure or content.read_rows:
        return
    if options.uri_column and options.label_column and content.table_format.may_have_box_rows:
        yield from warn_of_rows_of_classes(options, sample.first)


def _find_split_source(
    content: TableContent,
    roots: ImageRoots,
    images: Sequence[str],
    split_columns: Collection[str],
) -> SplitSource:
    """Finds where splits come from if no option says so.

    Args:
        content: the findings about the tables.
        roots: the folders of tables and images.
        images: paths of the first images, relative to the folder of all images.
        split_columns: unused columns that may hold the split of each row.
    """
    if content.options.split_column:
        return SplitSource()
    if content.options.shares:
        return _check_shares(content, roots.folder, images)
    if content.read_rows:
        warning = (
            f"all rows go to train: {spell_option('split_column', SPLIT)} keeps the splits of the "
            "dataset"
        )
        return SplitSource(OneSplit(is_told=True), (warning,))
    is_of_all = len(content.files) == 1 and bool(split_columns)
    return choose_split_source(content.files, roots.folder, images, roots.root, is_of_all=is_of_all)


def _check_shares(content: TableContent, folder: str, images: Sequence[str]) -> SplitSource:
    """Returns the source for rows that an option divides, with a warning about split folders.

    There is no warning if all rows go to one split, or if the table is one of our datasets.

    Args:
        content: the findings about the tables.
        folder: the folder of the tables.
        images: paths of the first images, relative to the folder of all images.

    Raises:
        UsageError: the tables already define several splits.
    """
    options = content.options
    if len(options.shares) == 1 or content.read_rows:
        return SplitSource()
    given = describe_splits(content.files, folder)
    if given:
        options.refuse_other_splits(given)
    text = describe_image_places(images, options.shares_option)
    return SplitSource(warnings=(*filter(None, [text]),))


def _image_columns(options: ConvertOptions, declarations: Mapping[str, str]) -> list[str]:
    """Returns the main column of images, and the columns of masks and paired images."""
    if not options.uri_column:
        return []
    columns = parse_columns(declarations)
    return [options.uri_column, *(column.name for column in columns if column.holds_files)]


def _split_all(cells: Iterable[Any], separator: str, *, in_text: bool) -> Iterator[Any]:
    """Yields the classes in cells; see `split_labels`."""
    for cell in cells:
        with contextlib.suppress(ValueError):  # reading the row raises the error
            yield from split_labels(cell, separator, in_text=in_text)


def _hold_lists(cells: Iterable[Any]) -> bool:
    return any(isinstance(cell, list) for cell in cells)


def _warn_of_split_feature(content: TableContent) -> Iterator[str]:
    """Yields a line about a column that is named for splits but becomes a feature."""
    if content.read_rows is None and takes_all(content.options):
        column = find_split_column(content)
        yield from filter(None, [describe_split_feature(column)])


def _warn_of_spaces(options: ConvertOptions, cells: Mapping[str, Sequence[Any]]) -> Iterator[str]:
    """Yields lines about spaces around splits and groups."""
    for column in (options.split_column, options.group_column):
        yield from filter(None, [describe_spaces(column, cells.get(column, ()))])


def _warn_of_shortened(
    options: ConvertOptions, roots: ImageRoots, cells: Mapping[str, Sequence[Any]]
) -> Iterator[str]:
    """Yields lines about shortened numbers, except those in names of missing images."""
    columns = [*options.roles]
    if roots.missing:
        columns.remove(options.uri_column)
    yield from warn_of_shortened(columns, cells)


def _warn_of_stand_ins(
    content: TableContent, cells: Mapping[str, Sequence[Any]], stand_ins: Sequence[StandIn]
) -> Iterator[str]:
    """Yields lines about columns that replace others, and about cases that options must decide."""
    yield from (stand_in.notice for stand_in in stand_ins)
    yield from describe_doubts(content.files, cells)
