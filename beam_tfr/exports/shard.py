"""A shard that is exported: its records, those that are wanted, and what they say."""

import dataclasses
import itertools
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np

from beam_tfr import storage
from beam_tfr.dataset.conditions import rows_that_fit
from beam_tfr.dataset.elements import decode_mask
from beam_tfr.dataset.lookup import RecordLookup
from beam_tfr.dataset.manifest import REPAIR_OR_COPY, Manifest
from beam_tfr.dataset.splits import ShardPart
from beam_tfr.engine import interrupt
from beam_tfr.records.examples import parse_example
from beam_tfr.schema import feature_names
from beam_tfr.schema.columns import points_of, typed
from beam_tfr.schema.encodings import FEATURES
from beam_tfr.schema.errors import DataError
from beam_tfr.schema.extensions import EXTENSIONS

BOXES = "boxes"  # [xmin, ymin, xmax, ymax] as shares of the image, of each object
MASKS = "masks"  # of each object, as COCO's run lengths
# A column with such a name gets a _.
_OWN = ("key", "split", "class", "label", BOXES, MASKS, "image", "mask", "file_name")
_APART = {
    *FEATURES,
    *feature_names.BOX_NAMES,
    feature_names.MASK,
    feature_names.OBJECT_MASK,
    feature_names.LABEL,
    feature_names.TEXT,
}


class Sample(NamedTuple):
    """A record.

    Attributes:
        values: feature -> values.
        about: what it says besides its images: `key`, `split`, `class`, `label`, `boxes`, columns.
        image: the encoded image.
        extension: that of its format: "jpg", "png", "webp".
        mask: its mask, a PNG; None if there is none.
    """

    values: Mapping[str, list[Any]]
    about: dict[str, Any]
    image: bytes
    extension: str
    mask: bytes | None


@dataclasses.dataclass
class Shard:
    """A shard of a dataset that is exported, whose records are found by its contents.

    Attributes:
        dataset: the dataset.
        part: the whole shard.
        where: conditions that the records must meet.
        output: folder of the export.
        report: called with the number of bytes of some records that were read.
        table: its contents.
        wanted: the numbers of the records that are exported, in order.

    Raises:
        UsageError: there is no column that a condition names.
        DataError: the contents are missing or damaged, or do not fit the file.
    """

    dataset: Manifest
    part: ShardPart
    where: Mapping[str, str]
    output: str = ""
    report: Callable[[int], object] = lambda _: None

    def __post_init__(self) -> None:
        self._lookup = RecordLookup(self.dataset, [self.part])
        self.table = self._lookup.open_shard(self.part)
        self.wanted = rows_that_fit(self.dataset, self.table, self.where)

    def records(self) -> Iterator[list[bytes]]:
        """The wanted records in order, some at a time.

        Raises:
            DataError: the shard is damaged, or another dataset has replaced this one.
            OSError: it cannot be read.
            InterruptedRunError: Ctrl-C.
        """
        for begin in range(0, len(self.wanted), storage.READ_AHEAD):
            records = self._lookup.read_records(self.wanted[begin : begin + storage.READ_AHEAD])
            interrupt.check_interrupt()
            self.report(sum(map(len, records)))
            yield records

    def samples(self) -> Iterator[list[Sample]]:
        """The wanted records in order, parsed, some at a time; raises as `records` does."""
        split = names_of(self.part.file)[2]
        for records in self.records():
            try:
                samples = [
                    sample_of(self.dataset, split, parse_example(record)) for record in records
                ]
            except (ValueError, LookupError) as error:
                raise DataError(
                    f"{self.part.file}: a record is not as the manifest says: {error}; {REPAIR_OR_COPY}"
                ) from None
            yield samples


def names_of(file: str) -> tuple[str, str, str]:
    """The names of dataset, shard and split of a file: ("flowers", "train-00003-of-00016",
    "train")."""
    name, _, shard = file.rpartition("/")[2].partition(".")[0].partition("-")
    return name, shard, shard.partition("-")[0]


def sample_of(dataset: Manifest, split: str, values: dict[str, list[Any]]) -> Sample:
    """The sample of a parsed record."""
    about: dict[str, Any] = {"key": _cell(values[feature_names.FILENAME][0]), "split": split}
    if feature_names.LABEL in values:
        classes = {
            "class": [text.decode() or None for text in values[feature_names.TEXT]],
            "label": values[feature_names.LABEL],
        }
        is_list = dataset.features[feature_names.LABEL]["shape"]
        about |= {name: found if is_list else found[0] for name, found in classes.items()}
    if feature_names.SIDES[0] in values:
        about[BOXES] = [*zip(*(values[side] for side in feature_names.SIDES), strict=True)]
    if feature_names.OBJECT_MASK in dataset.features:
        size = values[feature_names.HEIGHT][0], values[feature_names.WIDTH][0]
        about[MASKS] = [run_lengths(mask, size) for mask in values[feature_names.OBJECT_MASK]]
    for name, parts in dataset.points.items():
        shapes = points_of([values[part] for part in parts])
        about[column_name(name)] = (
            [[*itertools.chain(*box)] for box in shapes] if len(parts) > 3 else shapes
        )
    for name in own_columns(dataset):
        cells = [_cell(value) for value in values[name]]
        about[column_name(name)] = cells if dataset.features[name]["shape"] else cells[0]
    (image,) = values[feature_names.ENCODED]
    (form,) = values[feature_names.FORMAT]
    mask = [*values.get(feature_names.MASK, ()), None][0]
    return Sample(values, about, image, EXTENSIONS[form.decode()][0], mask)


def _cell(value: Any) -> Any:
    """A value of a column for JSON, which has no NaN."""
    if isinstance(value, bytes):
        return value.decode("utf-8", "backslashreplace")
    return value if value == value else None


def run_lengths(mask: bytes, size: tuple[int, int]) -> dict[str, list[int]]:
    """The run lengths of a mask, as in COCO: of 0, of 1, of 0, …, down its columns.

    Args:
        mask: a PNG of 0 and 1.
        size: height and width that it must have.

    Raises:
        ValueError: it is damaged, or has another size.
    """
    pixels = decode_mask(mask, size).reshape(-1, order="F")
    changes = np.flatnonzero(np.diff(pixels, prepend=0)).tolist()
    return {"size": [*size], "counts": np.diff([*changes, pixels.size], prepend=0).tolist()}


def own_columns(dataset: Manifest) -> list[str]:
    """The features of a table's columns, apart from those of boxes, points and masks."""
    columns = typed(dataset.options.get("feature_columns"))
    return [name for name in dataset.features if name in columns and name not in _APART]


def column_name(name: str) -> str:
    """The name of a column in an export."""
    return f"{name}_" if name in _OWN else name
