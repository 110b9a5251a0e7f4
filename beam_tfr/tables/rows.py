"""Turns table rows into references with labels, split and feature columns."""

import dataclasses
import functools
import json
from collections.abc import Iterator, Mapping
from fractions import Fraction

from beam_tfr import storage
from beam_tfr.features.base import ColumnKind
from beam_tfr.features.boxes import Boxes
from beam_tfr.features.cells import FractionError
from beam_tfr.features.companions import Companion
from beam_tfr.inputs.skipped import UNCOUNTED, SkippedFiles
from beam_tfr.options.implied import KNOWN, is_annotated
from beam_tfr.options.tabular import TableOptions
from beam_tfr.records.examples import parse_example
from beam_tfr.schema.dataset import NO_SPLIT
from beam_tfr.schema.errors import UsageError
from beam_tfr.schema.items import ImageRef
from beam_tfr.schema.pair_paths import fill_path
from beam_tfr.schema.spelling import spell_option
from beam_tfr.schema.value_places import ValuePlaces
from beam_tfr.tables import roles
from beam_tfr.tables.base import BadRow, DamagedTableError, RowReader, name_row
from beam_tfr.tables.formats import split_suffix
from beam_tfr.tables.image_folders import ImageFolder, choose_base
from beam_tfr.tables.image_names import ImageFinder
from beam_tfr.tables.names import NameColumn
from beam_tfr.tables.part_folders import PartFolders
from beam_tfr.tables.paths import resolve_path
from beam_tfr.tables.places import find_ignored_splits
from beam_tfr.tables.roles import Role, TableRow


@dataclasses.dataclass(frozen=True, kw_only=True)
class Tables:
    """Tables and their columns; made by `open_tables`.

    Attributes:
        files: all tables, sorted.
        options: options that assign roles to columns.
        splits: split -> fraction, by a stable hash of the key or group; may be empty.
        stratify: whether `transforms.splitting` chooses the splits later.
        split_role: the step that assigns each row its split if no option does.
        classes: the allowed classes, or None for any.
        numbered_names: allowed class -> its name, if classes are line numbers in a file of names.
        folder: the folder that all tables are in, with a trailing slash.
        root: the folder that keys are relative to, with a trailing slash.
        base: the folder that relative paths start from; an empty string stands for the folder of
            each table.
        image_folders: folders that the paths of certain tables start from instead.
        prefix, ignores_case, parts: how paths are read; see `ImageRoots`.
        multi_label: whether an image has any number of labels.
        label_names, key_names: read the cells of these columns.
        features: the columns that become features.
        read_rows: yields the rows of a table, with some of its columns.
        one_row_each: whether each table is a row, so that an unreadable table is a reject.
        joins_rows: whether `read_rows` joins the rows of an image that each hold a box or a class.
        box_cure: how to declare boxes that rows may hold; an empty string if no column looks like
            boxes.
        missing: the message about the first images if none of them exist; otherwise an empty
            string.
        warnings: lines about findings in the first rows.
    """

    files: tuple[str, ...]
    options: TableOptions
    splits: Mapping[str, Fraction] | None
    split_role: Role
    classes: frozenset[str] | None
    folder: str
    root: str
    base: str
    image_folders: frozenset[ImageFolder]
    multi_label: bool
    features: tuple[ColumnKind, ...]
    read_rows: RowReader
    numbered_names: Mapping[str, str] = dataclasses.field(default_factory=dict)
    label_names: NameColumn = NameColumn()
    key_names: NameColumn = NameColumn()
    stratify: bool = False
    prefix: str = ""
    ignores_case: bool = False
    parts: PartFolders | None = None
    one_row_each: bool = False
    joins_rows: bool = False
    box_cure: str = ""
    missing: str = ""
    warnings: tuple[str, ...] = ()

    @property
    def columns(self) -> list[str]:
        """The columns to read, without repeats."""
        names = [feature.name for feature in self.features]
        return list(dict.fromkeys([*self.options.roles, *names]))

    @property
    def key_column(self) -> str:
        """The column with the keys of rows; an empty string if keys are made from row numbers."""
        return self.options.uri_column or self.options.key_column

    @property
    def places(self) -> ValuePlaces:
        """Where classes and splits come from; the columns of annotations have no names."""
        role = self._split_role()
        label = self.options.label_column
        if is_annotated(self.files[0]):
            is_in_table = isinstance(role, roles.SplitRole)
            return ValuePlaces(split="table" if is_in_table else role.place)
        return ValuePlaces(f"column {label}" if label else "", role.place)

    def find_ignored_splits(self, split_folders: Mapping[str, int]) -> dict[str, int]:
        """Returns the splits that folders are named after, except splits already used or reported.

        Args:
            split_folders: see `Survey`.

        Returns:
            Split -> number of images.
        """
        role = self._split_role()
        if not self.options.uri_column or not isinstance(role, roles.OneSplit) or role.is_told:
            return {}
        ignored = find_ignored_splits(split_folders.keys())
        return {split: split_folders[split] for split in ignored}

    def read(self, path: str, skipped: SkippedFiles = UNCOUNTED) -> Iterator[ImageRef]:
        """Yields the reference of each row.

        The reference of an unusable row holds the reason for rejecting the row. So does the
        reference of an unreadable table, if each table is one row.

        Args:
            path: the table.
            skipped: counts files in the table that belong to no row.

        Raises:
            UsageError: a folder in which files are looked up cannot be listed.
            DataError: the table is damaged; the message names the row.
        """
        columns = self.columns
        name = path[len(self.folder) :]
        base = self._base_of(path)
        try:
            for entry in self.read_rows(path, columns, skipped):
                if isinstance(entry, BadRow):
                    yield self._reject(name, entry)
                    continue
                number, cells = entry
                by_column = dict(zip(columns, cells, strict=True))
                row = TableRow(path, name, number, by_column, base, self._finder)
                yield self._reference(row)
        except DamagedTableError as error:
            if not self.one_row_each:
                raise
            detail = f"{name}: {error.problem}"
            yield _first_ref(name, 1)._replace(reason="bad-value", detail=detail)

    def _reject(self, name: str, row: BadRow) -> ImageRef:
        """Returns the reference of an unreadable row, given the name of its table."""
        table = name if self.key_column else split_suffix(name)[0]
        detail = f"{name_row(name, row.number)}: {row.problem}"
        return _first_ref(table, row.number)._replace(reason="bad-value", detail=detail)

    def _base_of(self, path: str) -> str:
        """Returns the folder that relative paths in a table start from."""
        return choose_base(
            path, folder=self.folder, base=self.base, image_folders=self.image_folders
        )

    def _reference(self, row: TableRow) -> ImageRef:
        ref = _first_ref(row.name, row.number)
        for role in self._roles:
            try:
                ref = role.apply(ref, row)
            except UsageError:
                raise
            except (ValueError, ArithmeticError, RecursionError) as error:
                cure = _cure_fraction(role) if isinstance(error, FractionError) else ""
                detail = row.describe(f"column {role.column!r}: {error}{cure}")
                return ref._replace(reason="bad-value", detail=detail)
            if ref.reason:
                break
        return ref

    @functools.cached_property
    def _finder(self) -> ImageFinder:
        return ImageFinder(prefix=self.prefix, ignores_case=self.ignores_case, parts=self.parts)

    @functools.cached_property
    def _roles(self) -> tuple[Role, ...]:
        """The steps for each row, in order."""
        label = self.options.label_column
        boxes = next((feature for feature in self.features if isinstance(feature, Boxes)), None)
        steps: list[Role] = [self._key_role(), self._split_role()]
        if label:
            steps.append(
                roles.LabelRole(
                    column=label,
                    separator=self.options.label_separator,
                    is_list=self.multi_label,
                    of_boxes=boxes is not None,
                    names=self.label_names,
                    classes=self.classes,
                )
            )
        steps += map(roles.feature_role, self.features)
        if boxes:
            policy = self.options.box_policy
            if policy.drop_bad:
                steps.insert(0, roles.FindBadBoxes(column=boxes.name, boxes=boxes))
            counted = [feature.name for feature in self.features if feature.per_box]
            counted += [label] if label else []
            steps += [
                roles.CompareCounts(column=column, box_column=boxes.name) for column in counted
            ]
            steps.append(roles.BoxesRole(column=boxes.name, boxes=boxes, policy=policy))
        return (*steps, roles.StoreFeatures())

    def _key_role(self) -> Role:
        if self.options.uri_column:
            return roles.FileRole(column=self.options.uri_column, root=self.root)
        if self.options.key_column:
            return roles.KeyRole(column=self.options.key_column, names=self.key_names)
        return roles.RowNumbers()

    def _split_role(self) -> Role:
        if self.options.column_of_splits:
            return roles.SplitRole(column=self.options.split_column)
        if self.stratify:
            return roles.OpenSplitRole(column=self.options.group_column)
        if self.splits:
            return roles.SharesRole(column=self.options.group_column, splits=self.splits)
        return self.split_role


def _first_ref(table: str, number: int) -> ImageRef:
    """Returns the reference of a row of which only the number is known so far."""
    return ImageRef(f"{table}#{number}", 0, 0, NO_SPLIT, columns=b"")


def file_of(ref: ImageRef, *, root: str, companion: Companion) -> storage.Entry:
    """Returns the file of an image's companion.

    The companion has a path, or its bytes are in the columns of the reference.

    Args:
        ref: a reference to the image.
        root: the folder that keys are relative to, with a trailing slash.
        companion: a companion of the dataset's images.
    """
    if not companion.path:
        (entry,) = parse_example(ref.columns or b"")[companion.feature]
        return storage.Entry(*json.loads(entry))
    path = fill_path(companion.path, ref.key)
    return storage.Entry(resolve_path(path, root), 0, 0)


def _cure_fraction(role: Role) -> str:
    """Says how to declare a whole-number column as fractional, or returns an empty string."""
    if not isinstance(role, roles.FeatureRole) or not role.feature.text.startswith("int64"):
        return ""
    declaration = f"{role.column}:{role.feature.text.replace('int64', 'float')}"
    return (
        f"; {spell_option('feature_columns', f'{KNOWN},{declaration}')} stores fractional numbers"
    )
