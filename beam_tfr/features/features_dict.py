"""All features of the records of a dataset, which follow from its options."""

import dataclasses
import functools
from collections.abc import Mapping, Sequence
from typing import Any, Self

from beam_tfr.features.base import ColumnKind, FeatureKind, PixelMap, Stored, Values
from beam_tfr.features.boxes import Boxes, BoxPolicy, PlacedBoxes
from beam_tfr.features.companions import Companion, companion_by_path
from beam_tfr.features.elements import Request
from beam_tfr.features.labels import BoxLabels, ClassLabel
from beam_tfr.features.registry import parse_columns
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
    """The features of the records of a dataset.

    Attributes:
        encoding: option of `ConvertOptions`.
        fixed: those that every record of the encoding has.
        kinds: all others: the labels, the columns of a table, and images beside the images.
        columns: the columns of a table.
        label: the class of an image; None without labels.
        boxes: the boxes of an image; None without.
        companions: the images beside an image.
    """

    encoding: str
    fixed: Mapping[str, FeatureSpec]
    kinds: tuple[FeatureKind, ...]
    columns: tuple[ColumnKind, ...]
    label: ClassLabel | None
    boxes: Boxes | None
    companions: tuple[Companion, ...]

    @classmethod
    def from_options(
        cls, options: Mapping[str, Any], *, labelled: bool = False, class_names: Sequence[str] = ()
    ) -> Self:
        """The features that follow from the options of a plan or a manifest.

        Args:
            options: the options.
            labelled: whether there are labels.
            class_names: the classes, where they are known.

        Raises:
            ValueError: a column has an unknown type.
        """
        encoding = options["encoding"]
        fixed = encoding_features(encoding)
        if encoding in IMAGE_ENCODINGS and options.get("damaged") == "keep":
            fixed[SOURCE_DAMAGED] = FeatureSpec("int64")
        columns = parse_columns(options.get("feature_columns"))
        boxes = next((column for column in columns if isinstance(column, Boxes)), None)
        by_path = [*filter(None, map(companion_by_path, options.get("pair") or ()))]
        kinds: list[FeatureKind] = [*columns, *by_path]
        label = None
        if labelled:
            names = names_of(encoding)
            label = ClassLabel(
                name=names.label,
                text_name=names.text,
                is_list=bool(options.get("multi_label")),
                of_boxes=boxes is not None,
                may_lack="label_column" in options,
                class_names=(*class_names,),
            )
            kinds.insert(0, label)
            if boxes:
                kinds.append(BoxLabels(name=names.label, label=label))
        return cls(
            encoding=encoding,
            fixed=fixed,
            kinds=(*kinds,),
            columns=columns,
            label=label,
            boxes=boxes,
            companions=tuple(kind for kind in kinds if isinstance(kind, Companion)),
        )

    @functools.cached_property
    def specs(self) -> dict[str, FeatureSpec]:
        """What the features of a record hold.

        Raises:
            ValueError: a column has the name of another feature.
        """
        specs = dict(self.fixed)
        for kind in self.kinds:
            if specs.keys() & kind.specs.keys():
                raise ValueError(f"{kind.name!r} is there twice")
            specs |= kind.specs
        return specs

    @functools.cached_property
    def names(self) -> RecordNames:
        """The names of the key and label features."""
        sizes = tuple(feature for kind in self.kinds for feature in kind.content_sizes)
        return names_of(self.encoding)._replace(sizes=sizes)

    @functools.cached_property
    def box_features(self) -> frozenset[str]:
        """The features with a value for each box."""
        return frozenset(feature for kind in self.kinds for feature in kind.box_features)

    @property
    def follows_pixels(self) -> bool:
        """Whether records depend on where the pixels of their sources are."""
        return any(kind.follows_pixels for kind in self.kinds)

    @property
    def columns_follow_pixels(self) -> bool:
        """Whether values of a table depend on where the pixels of its images are."""
        return any(kind.follows_pixels for kind in self.kinds if not isinstance(kind, Companion))

    def as_columns(self) -> dict[str, ColumnKind]:
        """The columns of a table that is the dataset itself, by name."""
        kinds = [column for column in self.columns if not column.holds_files]
        columns = [kind.as_column() for kind in (*kinds, *self.companions)]
        return {column.name: column for column in columns if column}

    @property
    def left_out(self) -> list[str]:
        """What is stored, but no column of a table that is the dataset itself."""
        return [column.noun for column in self.columns if column.specs and not column.as_column()]

    def place(self, values: Values, pixels: PixelMap, policy: BoxPolicy) -> PlacedBoxes:
        """The features of a record, given those of its reference.

        Args:
            values: the features of the reference, with those of the labels of all boxes.
            pixels: where the pixels of the source are in the record.
            policy: what becomes of bad boxes, and of images without any.

        Raises:
            RejectError: the image has no boxes, or bad ones, or other values do not fit it.
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
        """Whether anything is counted of its values."""
        return any(kind.is_counted for kind in self.kinds)

    def count(self, total: Counts, stored: Stored, source: Stored | None) -> None:
        """Adds what is counted of the values of a record: see `FeatureKind.count`."""
        for kind in self.kinds:
            if kind.is_counted:
                total.add(kind.count(stored, source))

    def statistics(self, counts: Counts) -> dict[str, Any]:
        """The statistics of the manifest that follow from what is counted."""
        statistics = dict[str, Any]()
        for kind in self.kinds:
            statistics |= kind.statistics(counts)
        return statistics

    @property
    def compared(self) -> list[str]:
        """The features that tell whether two records have the same values of a table."""
        return [feature for kind in self.kinds for feature in kind.compared]

    @functools.cached_property
    def exported(self) -> list[FeatureKind]:
        """All kinds, in the order in which an exported record has their values."""
        return sorted(self.kinds, key=lambda kind: (kind.export_order, kind.name))

    def export(self, stored: Stored) -> dict[str, Any]:
        """What an exported record says of its values: see `FeatureKind.export`."""
        exported = dict[str, Any]()
        for kind in self.exported:
            exported |= kind.export(stored)
        return exported

    def export_files(self, stored: Stored) -> dict[str, bytes]:
        """The images that an exported record has besides its own: key -> PNG."""
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
        """The features that readers do not return as they are stored."""
        return [kind for kind in self.kinds if kind.is_decoded(request)]
