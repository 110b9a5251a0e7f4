"""Defines the roles of columns, as steps that add the value of a cell to a reference."""

import abc
import contextlib
import dataclasses
import functools
from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import Any

from beam_tfr import storage
from beam_tfr.features.base import ColumnKind, Values
from beam_tfr.features.boxes import Boxes, BoxPolicy
from beam_tfr.features.cells import MOST_BOXES, members_of, split_text
from beam_tfr.inputs.labels import LABEL_RULE, choose_split
from beam_tfr.layouts.parsing import SPLIT_RULE, is_split_name
from beam_tfr.layouts.split_names import DEFAULT_SPLIT
from beam_tfr.records.examples import serialize
from beam_tfr.schema.dataset import is_class_name
from beam_tfr.schema.differences import join_texts
from beam_tfr.schema.encoded_ref import open_split
from beam_tfr.schema.feature_names import BAD_BOXES
from beam_tfr.schema.items import ImageRef
from beam_tfr.schema.value_places import SHARES
from beam_tfr.tables.base import describe_values, name_row
from beam_tfr.tables.formats import split_suffix
from beam_tfr.tables.image_names import ImageFinder
from beam_tfr.tables.image_sets import name_of_image, read_image_sets
from beam_tfr.tables.names import NameColumn, read_single_name
from beam_tfr.tables.paths import folder_of
from beam_tfr.tables.places import split_of_table

_is_class_name = functools.lru_cache(is_class_name)  # many rows have the same class
_is_split_name = functools.lru_cache(is_split_name)

MOST_LABEL_LETTERS = 16 << 20  # per image: the names of its classes or its boxes' classes
MOST_BOX_VALUES = 4 * MOST_BOXES  # per image: sides, points and other values of its boxes
TOO_MANY_BOX_VALUES = (
    f"the boxes of the image have more than {MOST_BOX_VALUES:,} values, including points and all "
    "other columns"
)


@dataclasses.dataclass(slots=True)
class TableRow:
    """A row that is being turned into a reference.

    Attributes:
        path: the path of its table.
        name: the path of its table, relative to the folder of all tables.
        number: the number of the row, from 1.
        cells: column -> cell.
        base: the folder that relative paths start from, with a trailing slash.
        finder: finds images whose names differ slightly from those of their files.
        bad_boxes: the problem of each box, or an empty string for a good box; an empty sequence if
            no box is dropped.
        counts: column -> number of values, for columns with a value for each box.
        values: features of the reference.
        room: the number of further values that the row's boxes may have.
    """

    path: str
    name: str
    number: int
    cells: Mapping[str, Any]
    base: str
    finder: ImageFinder
    bad_boxes: Sequence[str] = ()
    counts: dict[str, int] = dataclasses.field(default_factory=dict)
    values: Values = dataclasses.field(default_factory=dict)
    room: int = MOST_BOX_VALUES

    def describe(self, problem: str) -> str:
        """Describes a problem, including its row."""
        return f"{name_row(self.name, self.number)}: {problem}"

    def without_bad(self, parts: Sequence[Any]) -> Sequence[Any]:
        """Returns the values of good boxes, given the values of all boxes.

        Raises:
            ValueError: there are more or fewer values than boxes.
        """
        if not self.bad_boxes:
            return parts
        if len(parts) != len(self.bad_boxes):
            raise ValueError(describe_values(len(parts), len(self.bad_boxes)))
        pairs = zip(parts, self.bad_boxes, strict=True)
        return [part for part, problem in pairs if not problem]

    def add_box_values(self, values: Values) -> None:
        """Adds features with a value for each box.

        Raises:
            ValueError: all boxes together have too many values.
        """
        self.room -= sum(len(members) for _, members in values.values())
        if self.room < 0:
            raise ValueError(TOO_MANY_BOX_VALUES)
        self.values.update(values)

    def find_file(self, cell: Any) -> storage.Entry:
        """Finds the file that a cell names or holds.

        Raises:
            ValueError: the cell is not a path.
        """
        if isinstance(cell, storage.Entry):
            return cell
        return storage.Entry(self.finder.find(cell, self.base, self.path), 0, 0)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Role(abc.ABC):
    """The purpose of a column.

    Attributes:
        column: the name of the column, also for messages; an empty string if no column has the
            role.
    """

    column: str = ""

    @property
    def place(self) -> str:
        """Where the values come from, for the summary; may be empty."""
        return f"column {self.column}" if self.column else ""

    @abc.abstractmethod
    def apply(self, ref: ImageRef, row: TableRow) -> ImageRef:
        """Returns the reference, updated with the row's cell in the column.

        Raises:
            ValueError: the cell cannot be used, which rejects the row.
            UsageError: the whole table cannot be used.
        """


@dataclasses.dataclass(frozen=True, kw_only=True)
class FindBadBoxes(Role):
    """A step that finds boxes to drop, along with their labels and values."""

    boxes: Boxes

    def apply(self, ref: ImageRef, row: TableRow) -> ImageRef:
        with contextlib.suppress(ValueError):  # such cells reject the row in any case
            row.bad_boxes = self.boxes.find_bad(row.cells[self.column])
        return ref


@dataclasses.dataclass(frozen=True, kw_only=True)
class FileRole(Role):
    """The column of images, whose paths are the keys.

    Attributes:
        root: the folder that keys are relative to, with a trailing slash.
    """

    root: str

    def apply(self, ref: ImageRef, row: TableRow) -> ImageRef:
        file = row.find_file(row.cells[self.column])
        if not file.path.startswith(self.root):
            raise ValueError(
                f"{file.path} is not in {self.root}; if other files are, give the folder that "
                "contains all files as `image_root=`"
            )
        ref = ref._replace(
            key=file.path[len(self.root) :],
            size_bytes=file.size_bytes,
            generation=file.generation,
            place=file.place,
        )
        if file.problem:
            return ref._replace(reason="unusable-file", detail=file.problem)
        return ref


@dataclasses.dataclass(frozen=True, kw_only=True)
class KeyRole(Role):
    """The column with the keys.

    Attributes:
        names: reads the keys.
    """

    names: NameColumn

    def apply(self, ref: ImageRef, row: TableRow) -> ImageRef:
        return ref._replace(key=self.names.read(row.cells[self.column]))


@dataclasses.dataclass(frozen=True, kw_only=True)
class RowNumbers(Role):
    """Keys made from the name of the table and the number of the row."""

    def apply(self, ref: ImageRef, row: TableRow) -> ImageRef:
        return ref._replace(key=f"{split_suffix(row.name)[0]}#{row.number}")


@dataclasses.dataclass(frozen=True, kw_only=True)
class SplitRole(Role):
    """The column with the split."""

    def apply(self, ref: ImageRef, row: TableRow) -> ImageRef:
        split = read_single_name(row.cells[self.column])
        if not _is_split_name(split):
            raise ValueError(f"{split!r:.100} cannot be a split: {SPLIT_RULE}")
        return ref._replace(split=split)


@dataclasses.dataclass(frozen=True, kw_only=True)
class SharesRole(Role):
    """Splits by fraction.

    The column holds groups of rows; each group stays in one split.

    Attributes:
        splits: split -> fraction.
    """

    splits: Mapping[str, Fraction]

    @property
    def place(self) -> str:
        return SHARES

    def apply(self, ref: ImageRef, row: TableRow) -> ImageRef:
        group = read_single_name(row.cells[self.column]) if self.column else ref.key
        return ref._replace(split=choose_split(group, self.splits))


@dataclasses.dataclass(frozen=True, kw_only=True)
class OpenSplitRole(Role):
    """Splits that are chosen later, by classes.

    The column holds groups of rows; each group stays in one split.
    """

    @property
    def place(self) -> str:
        return SHARES

    def apply(self, ref: ImageRef, row: TableRow) -> ImageRef:
        group = read_single_name(row.cells[self.column]) if self.column else ""
        return ref._replace(split=open_split(group))


@dataclasses.dataclass(frozen=True, kw_only=True)
class OneSplit(Role):
    """A single split for all rows.

    Attributes:
        is_told: whether a warning already mentions images in folders named like splits.
    """

    is_told: bool = False

    def apply(self, ref: ImageRef, row: TableRow) -> ImageRef:
        return ref._replace(split=DEFAULT_SPLIT)


@dataclasses.dataclass(frozen=True, kw_only=True)
class PlaceRole(Role):
    """The split that the folder or name of the table implies.

    Attributes:
        export_splits: the splits of our export, if the tables belong to an export; otherwise an
            empty set.
        shared_splits: see `split_of_table`.
    """

    export_splits: frozenset[str] = frozenset()
    shared_splits: Mapping[str, str] = dataclasses.field(default_factory=dict)

    @property
    def place(self) -> str:
        return "table"

    def apply(self, ref: ImageRef, row: TableRow) -> ImageRef:
        split = split_of_table(row.name, self.export_splits, self.shared_splits)
        return ref._replace(split=split)


@dataclasses.dataclass(frozen=True, kw_only=True)
class ImageSetRole(Role):
    """The split whose list names the image of a table with a single image."""

    @property
    def place(self) -> str:
        return "list"

    def apply(self, ref: ImageRef, row: TableRow) -> ImageRef:
        image_sets = read_image_sets(folder_of(row.path))
        image = name_of_image(row.path)
        ref = ref._replace(split=image_sets.split_of(image))
        problem = image_sets.problems.get(image, "")
        if problem:
            return ref._replace(reason="bad-value", detail=row.describe(f"{image} {problem}"))
        return ref


@dataclasses.dataclass(frozen=True, kw_only=True)
class LabelRole(Role):
    """The column with the class of a row, the class of each of its boxes, or several classes.

    Attributes:
        separator: the separator of classes in a string; an empty string if a string is one class.
        is_list: whether there may be any number of classes.
        of_boxes: whether there is a class for each box.
        names: reads the names of classes.
        classes: the allowed classes, or None for any.
    """

    separator: str
    is_list: bool
    of_boxes: bool
    names: NameColumn
    classes: frozenset[str] | None

    def apply(self, ref: ImageRef, row: TableRow) -> ImageRef:
        parts = row.without_bad(self._split(row.cells[self.column]))
        labels = tuple(map(self._read_class, parts))
        if sum(map(len, labels)) > MOST_LABEL_LETTERS:
            raise ValueError(
                f"its classes have more than {MOST_LABEL_LETTERS:,} characters in total"
            )
        if self.of_boxes:
            row.counts[self.column] = len(labels)
        else:
            labels = tuple(dict.fromkeys(labels))
        if not labels and not self.is_list:
            labels = ("",)
        ref = ref._replace(labels=labels)
        for label in labels:
            if label and self.classes is not None and label not in self.classes:
                detail = row.describe(f"class {label!r} is not in the file of --classes")
                return ref._replace(reason="unknown-class", detail=detail)
        return ref

    def _split(self, cell: Any) -> list[Any]:
        """Returns the classes in a cell; an empty list if the cell is empty.

        Raises:
            ValueError: the cell has several classes, although the first rows have one each.
        """
        if self.names.is_missing(cell):
            return []
        if isinstance(cell, list) and not self.is_list:
            raise ValueError("has a list of labels, but the first rows have one label each")
        return split_labels(cell, self.separator, in_text=self.of_boxes)

    def _read_class(self, cell: Any) -> str:
        label = self.names.read(cell)
        if not _is_class_name(label):
            raise ValueError(f"{label!r:.100} cannot be a class: {LABEL_RULE}")
        return label


def _is_blank(part: Any) -> bool:
    return isinstance(part, str) and not part.strip()


def split_labels(cell: Any, separator: str, *, in_text: bool) -> list[Any]:
    """Returns the classes in a nonempty cell.

    Args:
        cell: the cell.
        separator: the separator of classes in a string; an empty string if a string is one class.
        in_text: whether a string may be a list even without a separator.
    """
    if isinstance(cell, bytes):  # Parquet may store strings without marking them as such
        cell = cell.decode()
    if isinstance(cell, str) and (in_text or separator):
        parts = split_text(cell, separator)
        if in_text:
            return parts
        return [part for part in parts if not _is_blank(part)] or parts  # such as for `cat;`
    return members_of(cell)


@dataclasses.dataclass(frozen=True, kw_only=True)
class FeatureRole(Role):
    """A column that becomes a feature.

    Attributes:
        feature: the feature.
    """

    feature: ColumnKind

    def apply(self, ref: ImageRef, row: TableRow) -> ImageRef:
        values = self.feature.parse(row.cells[self.column])
        row.values.update(self.feature.encode(values))
        return ref


@dataclasses.dataclass(frozen=True, kw_only=True)
class BoxFeatureRole(FeatureRole):
    """A column that becomes a feature with a value for each box."""

    def apply(self, ref: ImageRef, row: TableRow) -> ImageRef:
        cell = row.cells[self.column]
        if row.bad_boxes:
            cell = row.without_bad(self.feature.split(cell))
        values = self.feature.parse(cell)
        row.counts[self.column] = len(values)
        row.add_box_values(self.feature.encode(values))
        return ref


@dataclasses.dataclass(frozen=True, kw_only=True)
class CompanionRole(FeatureRole):
    """A column of masks or paired images."""

    def apply(self, ref: ImageRef, row: TableRow) -> ImageRef:
        cell = row.cells[self.column]
        if self.feature.is_optional and cell in (None, ""):
            file = storage.Entry("", 0, 0)
        else:
            file = row.find_file(cell)
        values = self.feature.parse(file)
        row.values.update(self.feature.encode(values))
        return ref


@dataclasses.dataclass(frozen=True, kw_only=True)
class CompareCounts(Role):
    """A step that compares the number of a column's values with the number of boxes.

    Attributes:
        box_column: the column of the boxes.
    """

    box_column: str

    def apply(self, ref: ImageRef, row: TableRow) -> ImageRef:
        values = row.counts[self.column]
        boxes = row.counts[self.box_column]
        if values != boxes:
            raise ValueError(describe_values(values, boxes))
        return ref


@dataclasses.dataclass(frozen=True, kw_only=True)
class BoxesRole(Role):
    """The step for the column of boxes, which notes bad boxes and images without boxes.

    Attributes:
        boxes: the feature.
        policy: the treatment of bad boxes and of images without boxes.
    """

    boxes: Boxes
    policy: BoxPolicy

    def apply(self, ref: ImageRef, row: TableRow) -> ImageRef:
        bad = [*filter(None, row.bad_boxes)]
        if not bad:
            bad = self.boxes.name_outside(row.cells[self.column], row.values)
        if bad:
            row.values[BAD_BOXES] = ("bytes", [name.encode() for name in bad])
        if self.policy.need_box and not row.counts[self.column]:
            detail = row.describe(join_texts(bad) or "there is no box")
            return ref._replace(reason="without-boxes", detail=detail)
        return ref


@dataclasses.dataclass(frozen=True, kw_only=True)
class StoreFeatures(Role):
    """A step that stores the values of all columns that become features."""

    def apply(self, ref: ImageRef, row: TableRow) -> ImageRef:
        return ref._replace(columns=serialize(row.values)) if row.values else ref


def feature_role(feature: ColumnKind) -> FeatureRole:
    """Returns the step for a column that becomes a feature."""
    if feature.holds_files:
        return CompanionRole(column=feature.name, feature=feature)
    if feature.per_box:
        return BoxFeatureRole(column=feature.name, feature=feature)
    return FeatureRole(column=feature.name, feature=feature)
