"""Collects all features of a dataset's records, which follow from its options."""

import dataclasses
import functools
import itertools
from collections.abc import Collection, Mapping, Sequence
from typing import Any, Self

from beam_tfr.features.base import ColumnKind, FeatureKind, PixelMap, Stored, Values
from beam_tfr.features.boxes import Boxes, BoxPolicy, PlacedBoxes
from beam_tfr.features.companions import Companion, parse_pair
from beam_tfr.features.elements import Request
from beam_tfr.features.labels import BoxLabels, ClassLabel
from beam_tfr.features.points import Keypoints, Polygons
from beam_tfr.features.registry import find_boxes, parse_columns
from beam_tfr.schema.encodings import (
    IMAGE_ENCODINGS,
    RecordNames,
    encoding_features,
    names_of,
)
from beam_tfr.schema.feature_names import SOURCE_DAMAGED, FeatureSpec
from beam_tfr.schema.plan import Counts


@dataclasses.dataclass(frozen=True, kw_only=True)
class FeaturesDict:
    """The features of a dataset's records.

    Attributes:
        encoding: option of `ConvertOptions`.
        fixed: the features that every record with this encoding has.
        label: the class of an image; None without labels.
        columns: the columns of a table.
        pairs: the companions of an image that are found by their paths.
    """

    encoding: str
    fixed: Mapping[str, FeatureSpec]
    label: ClassLabel | None
    columns: tuple[ColumnKind, ...]
    pairs: tuple[Companion, ...]

    @classmethod
    def from_options(
        cls, options: Mapping[str, Any], *, labelled: bool = False, class_names: Sequence[str] = ()
    ) -> Self:
        """Returns the features that follow from the options of a plan or a manifest.

        Args:
            options: the options.
            labelled: whether there are labels.
            class_names: the classes, if they are known.

        Raises:
            ValueError: a column has an unknown type.
        """
        encoding = options["encoding"]
        fixed = encoding_features(encoding)
        if encoding in IMAGE_ENCODINGS and options.get("damaged") == "keep":
            fixed[SOURCE_DAMAGED] = FeatureSpec("int64")
        columns = parse_columns(options.get("feature_columns"))
        pairs = tuple(map(parse_pair, options.get("pair") or ()))
        label = None
        if labelled:
            names = names_of(encoding)
            label = ClassLabel(
                name=names.label,
                text_name=names.text,
                is_list=bool(options.get("multi_label")),
                of_boxes=find_boxes(columns) is not None,
                may_lack="label_column" in options,
                class_names=(*class_names,),
            )
        return cls(encoding=encoding, fixed=fixed, label=label, columns=columns, pairs=pairs)

    @functools.cached_property
    def kinds(self) -> tuple[FeatureKind, ...]:
        """All features that a dataset may lack."""
        values = (*self.columns, *self.pairs)
        if self.label is None:
            return values
        if self.label.of_boxes:
            return (self.label, *values, BoxLabels(name=self.label.name, label=self.label))
        return (self.label, *values)

    @functools.cached_property
    def boxes(self) -> Boxes | None:
        """The boxes of an image; None if it has no boxes."""
        return find_boxes(self.columns)

    @property
    def keypoints(self) -> Keypoints | None:
        """The first keypoints of the boxes; None if there are none."""
        return next((kind for kind in self.columns if isinstance(kind, Keypoints)), None)

    @property
    def polygons(self) -> Polygons | None:
        """The first polygons of the boxes; None if there are none."""
        return next((kind for kind in self.columns if isinstance(kind, Polygons)), None)

    @functools.cached_property
    def companions(self) -> tuple[Companion, ...]:
        """The companions of an image: its masks, and the other images in its pairs."""
        files = [column for column in self.columns if isinstance(column, Companion)]
        return (*files, *self.pairs)

    @functools.cached_property
    def specs(self) -> dict[str, FeatureSpec]:
        """The type and shape of each feature of the records.

        Raises:
            ValueError: a column has the same name as another feature.
        """
        specs = dict(self.fixed)
        for kind in self.kinds:
            if specs.keys() & kind.specs.keys():
                raise ValueError(f"{kind.name!r} occurs twice")
            specs |= kind.specs
        return specs

    @functools.cached_property
    def names(self) -> RecordNames:
        """The names of the key and label features."""
        sizes = itertools.chain.from_iterable(kind.content_sizes for kind in self.kinds)
        return names_of(self.encoding)._replace(sizes=tuple(sizes))

    @functools.cached_property
    def box_features(self) -> frozenset[str]:
        """The features with a value for each box."""
        features = set[str]()
        for kind in self.kinds:
            features.update(kind.box_features)
        return frozenset(features)

    @property
    def follows_pixels(self) -> bool:
        """Whether records depend on where they show the pixels of their sources."""
        return any(kind.follows_pixels for kind in self.kinds)

    @property
    def marks_places(self) -> bool:
        """Whether values mark places in the images, as boxes and masks do."""
        return any(kind.marks_places for kind in self.kinds)

    @property
    def columns_follow_pixels(self) -> bool:
        """Whether values in a table depend on where records show the pixels of its images."""
        return any(kind.follows_pixels and kind not in self.companions for kind in self.kinds)

    def as_columns(self) -> dict[str, ColumnKind]:
        """Returns, by name, the columns of the dataset when it is read as a table."""
        values = [column for column in self.columns if not column.holds_files]
        columns = [kind.as_column() for kind in (*values, *self.companions)]
        return {column.name: column for column in columns if column}

    @property
    def left_out(self) -> list[str]:
        """The stored features that are not columns of the dataset when it is read as a table."""
        return [column.noun for column in self.columns if column.specs and not column.as_column()]

    def place(self, values: Values, pixels: PixelMap, policy: BoxPolicy) -> PlacedBoxes:
        """Returns the features of a record, given those of its reference.

        Args:
            values: the features of the reference, with those of the labels of all boxes.
            pixels: the mapping from the source to the record.
            policy: what to do with bad boxes, and with images without boxes.

        Raises:
            RejectError: the image has no boxes or bad boxes, or other values do not match it.
        """
        placed = PlacedBoxes({}, [], set())
        if self.boxes:
            placed = self.boxes.place_boxes(values, pixels, policy)
        for kind in self.kinds:
            if kind is not self.boxes:
                placed.features.update(kind.place(values, pixels, placed.kept))
        return placed

    @functools.cached_property
    def is_counted(self) -> bool:
        """Whether anything in the values is counted."""
        return any(kind.is_counted for kind in self.kinds)

    def count(self, total: Counts, stored: Stored, source: Stored | None) -> None:
        """Adds the counts of a record to `total`: see `FeatureKind.count`."""
        for kind in self.kinds:
            if kind.is_counted:
                total.add(kind.count(stored, source))

    def statistics(self, counts: Counts) -> dict[str, Any]:
        """Computes the statistics of the manifest from the counts."""
        statistics = dict[str, Any]()
        for kind in self.kinds:
            statistics |= kind.statistics(counts)
        return statistics

    @property
    def compared(self) -> list[str]:
        """The features that show whether two records have the same values from a table."""
        return [*itertools.chain.from_iterable(kind.compared for kind in self.kinds)]

    @functools.cached_property
    def exported(self) -> list[FeatureKind]:
        """All features, in the order of their values in an exported record."""
        return sorted(self.kinds, key=lambda kind: (kind.export_order, kind.name))

    def export(self, stored: Stored, left_out: Collection[str] = ()) -> dict[str, Any]:
        """Returns the fields of an exported record: see `FeatureKind.export`.

        Args:
            stored: the record.
            left_out: the names of features to leave out.
        """
        exported = dict[str, Any]()
        for kind in self.exported:
            if kind.name not in left_out:
                exported |= kind.export(stored)
        return exported

    def export_files(self, stored: Stored) -> dict[str, bytes]:
        """Returns the images that an exported record has in addition to its own: key -> PNG."""
        files = dict[str, bytes]()
        for kind in self.kinds:
            files |= kind.export_files(stored)
        return files

    @functools.cached_property
    def annotated(self) -> list[FeatureKind]:
        """The first feature of each kind, in the order of COCO's annotations."""
        first = {type(kind): kind for kind in reversed(self.kinds)}
        return sorted(first.values(), key=lambda kind: kind.export_order)

    def decoded(self, request: Request) -> list[FeatureKind]:
        """Returns the features that readers do not return as stored."""
        return [kind for kind in self.kinds if kind.is_decoded(request)]
