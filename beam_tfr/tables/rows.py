"""Turns table rows into references with labels, split and feature columns."""

import contextlib
import dataclasses
import itertools
import json
import os
import posixpath
from collections.abc import Callable, Iterator, Mapping, Sequence
from fractions import Fraction
from typing import Any

from beam_tfr import storage
from beam_tfr.inputs.labels import DEFAULT_SPLIT, LABEL_RULE, choose_split
from beam_tfr.layouts.parsing import SPLIT_RULE, is_split_name
from beam_tfr.options.tabular import TableOptions
from beam_tfr.records import examples
from beam_tfr.records.repeats import KeyPosition
from beam_tfr.records.tensors import Values
from beam_tfr.schema.boxes import RELATIVE, is_outside
from beam_tfr.schema.columns import ColumnType, name_box, split_list
from beam_tfr.schema.dataset import NO_SPLIT, is_class_name
from beam_tfr.schema.differences import join_texts
from beam_tfr.schema.errors import UsageError
from beam_tfr.schema.feature_names import BAD_BOXES, BOXES, SOURCE_SIDES
from beam_tfr.schema.features import Companion, column_feature, column_features
from beam_tfr.schema.items import ImageRef
from beam_tfr.tables.checks import Row, table_error
from beam_tfr.tables.formats import split_suffix


@dataclasses.dataclass(frozen=True, kw_only=True)
class Tables:
    """Tables and their columns; made by `open_tables`.

    Attributes:
        files: all tables, sorted.
        options: which columns have a role.
        splits: split -> share, by a stable hash of key or group; None if there are none.
        classes: the allowed classes, or None for any.
        folder: the folder that all tables share, with a trailing slash.
        root: the folder that keys are relative to, with a trailing slash.
        base: the folder that relative paths start from; empty for that of each table.
        multi_label: whether an image has any number of labels.
        types: column -> type, of the columns that become features.
        read_rows: yields the rows of a table with some columns.
        warnings: about what the first rows show.
    """

    files: tuple[str, ...]
    options: TableOptions
    splits: Mapping[str, Fraction] | None
    classes: frozenset[str] | None
    folder: str
    root: str
    base: str
    multi_label: bool
    types: Mapping[str, ColumnType]
    read_rows: Callable[[str, Sequence[str]], Iterator[Row]]
    warnings: tuple[str, ...] = ()

    @property
    def columns(self) -> list[str]:
        """The columns to read, each once."""
        return list(dict.fromkeys([*self.options.roles, *self.types]))

    @property
    def key_column(self) -> str:
        """The column that the keys of rows come from; empty if they are numbers."""
        return self.options.uri_column or self.options.key_column

    @property
    def box_column(self) -> str:
        """The column of boxes, to which the labels of a row belong; empty if there is none."""
        return next((name for name, of in self.types.items() if of.boxes), "")

    def describe_repeats(self, number: int, place: KeyPosition, earlier_place: KeyPosition) -> str:
        """The error message for so many rows that repeat a key, the first of them at a place."""
        (table, row) = place
        (earlier, before) = earlier_place
        column = self.key_column or "number"
        what = "file" if self.options.uri_column else "key"
        return (
            f"`table={self.files[table]}, row {row}`: its {column} is that of row {before} of {self.files[earlier]}"
            f"{f'; {number} rows repeat one' if number > 1 else ''}. "
            f"Each {what} may have one row: remove the others"
            f"{', or combine their values into lists' if self.options.uri_column else ''}"
        )

    def read(self, path: str) -> Iterator[ImageRef]:
        """Yields the reference of each row; a row that cannot be used carries the reason of its
        reject.

        Raises:
            UsageError: a row names a file outside of `root`.
            DataError: the table is damaged. Both name the row.
        """
        columns = self.columns
        for number, cells in self.read_rows(path, columns):
            yield self._reference(path, number, dict(zip(columns, cells, strict=True)))

    def _reference(self, path: str, number: int, cells: Mapping[str, Any]) -> ImageRef:
        options = self.options
        name = path[len(self.folder) :]
        wrong = self._wrong_boxes(cells)
        ref = ImageRef(f"{name}#{number}", 0, 0, NO_SPLIT, columns=b"")
        column = self.key_column
        try:
            ref = ref._replace(key=self._key(path, number, cells.get(column)))
            if isinstance(cells.get(options.uri_column), storage.Entry):
                _, size, generation, _, place, problem = cells[options.uri_column]
                ref = ref._replace(size_bytes=size, generation=generation, place=place)
                if problem:
                    return ref._replace(reason="unusable-file", detail=problem)
            column = options.split_column
            split = _name(cells[column]) if column else ""
            if column and not is_split_name(split):
                raise ValueError(f"{split!a:.100} cannot be a split: {SPLIT_RULE}")
            column = options.group_column
            group = _name(cells[column]) if column else ref.key
            if not split:
                split = choose_split(group, self.splits) if self.splits else DEFAULT_SPLIT
            ref = ref._replace(split=split)
            column = options.label_column
            if column:
                ref = ref._replace(labels=self._labels(cells[column], wrong))
                if self.classes is None:
                    unknown = []
                else:
                    unknown = [x for x in ref.labels if x and x not in self.classes]
                if unknown:
                    detail = f"{name}, row {number}: class {unknown[0]!r} is not in the file of --classes"
                    return ref._replace(reason="unknown-class", detail=detail)
            values: Values = {}
            numbers: dict[str, int] = {}  # of what there is for each box
            for column, column_type in self.types.items():
                cell = cells[column]
                if wrong and column_type.each_box:
                    cell = _without_bad(column_type.parts(cell), wrong)
                if column_type.beside:
                    file = self._file(path, cell)
                    if file.problem:
                        raise ValueError(file.problem)
                    found: list[Any] = [json.dumps(file).encode()]
                else:
                    found = column_type.values(cell)
                if column_type.each_box:
                    numbers[column] = len(found)
                if column_type.boxes or column_type.points:
                    values |= _coordinates(column, column_type, found)
                else:
                    values[column_feature(column, column_type)] = (column_type.dtype, found)
            numbers |= (
                {column: len(ref.labels)}
                if (column := options.label_column) and self.box_column
                else {}
            )
            for column in numbers:
                if numbers[column] != (boxes := numbers.get(self.box_column, 0)):
                    raise ValueError(f"has {numbers[column]} values for {boxes} boxes")
            bad = [*filter(None, wrong)] or self._outside(cells, values)
            if bad:
                values[BAD_BOXES] = ("bytes", [told.encode() for told in bad])
        except UsageError:
            raise
        except ValueError as error:
            detail = f"{name}, row {number}: column {column!a}: {error}"
            return ref._replace(reason="bad-value", detail=detail)
        if self.options.no_boxes == "reject" and not numbers.get(self.box_column):
            told = join_texts(bad) or "there is no box"
            return ref._replace(reason="without-boxes", detail=f"{name}, row {number}: {told}")
        return ref._replace(columns=examples.serialize(values))

    def _wrong_boxes(self, cells: Mapping[str, Any]) -> list[str]:
        """For each box of a row what is wrong with it, or nothing; empty if no box is to be
        dropped."""
        found = list[Any]()
        if self.options.bad_boxes == "drop" and self.box_column:
            with contextlib.suppress(ValueError):  # of cells that reject the row in any case
                found = self.types[self.box_column].corners(cells[self.box_column])
        wrong = [str(box) if isinstance(box, ValueError) else "" for box in found]
        return wrong if any(wrong) else []

    def _outside(self, cells: Mapping[str, Any], values: Values) -> list[str]:
        """The names of the boxes of a row that are outside of an image of the size that the row
        states."""
        size = tuple(sum(values.get(side, ("", ()))[1]) for side in SOURCE_SIDES)
        kind = self.types.get(self.box_column)
        if kind is None or kind.boxes.startswith(RELATIVE) or min(size) <= 0:
            return []
        sides = values[BOXES][1]
        boxes = enumerate(kind.parts(cells[self.box_column]))
        return [
            name_box(box, at + 1)
            for at, box in boxes
            if is_outside(sides[4 * at : 4 * at + 4], size)
        ]

    def _key(self, path: str, number: int, cell: Any) -> str:
        """The key of a row: its file below `root`, the cell, or the name of the table and the row
        number.

        Raises:
            ValueError: the cell cannot be a key.
            UsageError: the file is not below `root`.
        """
        if self.options.uri_column:
            file = self._file(path, cell).path
            if not file.startswith(self.root):
                cure = "give the folder that contains all files as `image_root=`"
                raise table_error(
                    f"{path}, row {number}", f"{file} is not below {self.root}; {cure}"
                )
            return file[len(self.root) :]
        if self.options.key_column:
            return _name(cell)
        return f"{split_suffix(path)[0][len(self.folder) :]}#{number}"

    def _file(self, path: str, cell: Any) -> storage.Entry:
        """The file that a cell of a table names or holds.

        Raises:
            ValueError: it is not a path.
        """
        if isinstance(cell, storage.Entry):
            return cell
        return storage.Entry(resolve(cell, self.base or folder_of(path)), 0, 0)

    def _labels(self, cell: Any, wrong: Sequence[str]) -> tuple[str, ...]:
        """The labels of a row; one of "" for a row without a label where each has at most one.

        Raises:
            ValueError: a label cannot be a class.
        """
        if isinstance(cell, list) and not self.multi_label:
            raise ValueError("a list of labels; the first rows have one each")
        if cell is None or cell == "" or cell != cell:  # NaN: a missing value of pandas
            parts = []
        elif isinstance(cell, str) and (self.box_column or self.options.label_separator):
            parts = split_list(cell, self.options.label_separator)
        else:
            parts = cell if isinstance(cell, list) else [cell]
        parts = _without_bad(parts, wrong) if wrong else parts
        if not self.multi_label and not parts:
            return ("",)
        labels = tuple(_name(part) for part in parts)
        for label in labels:
            if not is_class_name(label):
                raise ValueError(f"{label!a:.100} cannot be a class: {LABEL_RULE}")
        if len(set(labels)) != len(labels) and not self.box_column:
            raise ValueError("names a class twice")
        return labels


def _without_bad(parts: Sequence[Any], wrong: Sequence[str]) -> list[Any]:
    """The values of boxes with which nothing is wrong, given the values of all.

    Raises:
        ValueError: these are more or fewer than the boxes.
    """
    if len(parts) != len(wrong):
        raise ValueError(f"has {len(parts)} values for {len(wrong)} boxes")
    return [part for part, problem in zip(parts, wrong, strict=True) if not problem]


def _coordinates(name: str, column: ColumnType, found: Sequence[Any]) -> Values:
    """The features of a reference that a column of boxes or points becomes, given those of each
    box."""
    flat = itertools.chain.from_iterable(found)
    if column.boxes:
        return {BOXES: ("float", [*flat])}
    features = column_features(name, column)
    parts: list[Sequence[Any]] = [*zip(*flat, strict=True)] or [()] * (len(features) - 1)
    parts.append([len(points) for points in found])
    return {
        feature: (dtype, part)
        for (feature, (dtype, _)), part in zip(features.items(), parts, strict=True)
    }


def file_of(ref: ImageRef, *, root: str, companion: Companion) -> storage.Entry:
    """The file of a companion of an image: by its path, or in the columns of the reference.

    Args:
        ref: a reference to the image.
        root: the folder that keys are relative to, with a trailing slash.
        companion: one of those of the dataset.
    """
    if not companion.path:
        return storage.Entry(
            *json.loads(examples.parse_example(ref.columns or b"")[companion.feature][0])
        )
    path = os.path.splitext(ref.key)[0]
    named = companion.path.replace("{path}", path).replace("{stem}", path.rpartition("/")[2])
    return storage.Entry(resolve(named, root), 0, 0)


def _text(cell: Any, what: str = "path") -> str:
    """The text of a cell.

    Raises:
        ValueError: it holds anything else, or nothing, or is such an error.
    """
    if cell is None or cell == "":
        raise ValueError("has no value")
    if isinstance(cell, ValueError):  # of annotations
        raise cell
    if not isinstance(cell, str):
        raise ValueError(f"{cell!a:.100} is no {what}")
    if "\0" in cell:
        raise ValueError("has a NUL character")
    return cell


def _name(cell: Any) -> str:
    """As `_text`, also of a whole number."""
    if isinstance(cell, float) and cell.is_integer():
        cell = int(cell)  # pandas writes whole numbers like this beside missing values
    if isinstance(cell, int) and not isinstance(cell, bool):
        cell = str(cell)
    return _text(cell, "text or whole number")


def resolve(uri: Any, base: str) -> str:
    """The path of the file that a cell names.

    Args:
        uri: gs://, absolute, or relative to `base`.
        base: folder, with a trailing slash.

    Raises:
        ValueError: the cell is not a path.
    """
    path = _text(uri)
    if storage.is_gcs(path):
        if not all(path[len(storage.GCS) :].partition("/")):
            raise ValueError(f"{path!a:.100} has no object name; it must be gs://BUCKET/NAME")
        return path
    if "://" in path:
        raise ValueError(f"{path!a:.100}: only local paths and gs:// are read")
    if storage.is_gcs(base) and not path.startswith("/"):
        name = f"{base[len(storage.GCS) :]}{path}"
        return storage.GCS + (posixpath.normpath(name) if ".." in path.split("/") else name)
    return os.path.normpath(os.path.join(base, path))


def folder_of(path: str) -> str:
    """The folder of a file, with a trailing slash."""
    return path[: path.rindex("/") + 1]
