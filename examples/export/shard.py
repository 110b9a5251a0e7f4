"""A shard that is exported: its records, those that are wanted, and what they say."""

import contextlib
import dataclasses
import hashlib
import itertools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from beam_tfr import storage
from beam_tfr.dataset.elements import decode_mask
from beam_tfr.dataset.manifest import REPAIR, Manifest, ShardEntry
from beam_tfr.records.examples import parse_example
from beam_tfr.records.tfrecords import RecordFile, longest_in
from beam_tfr.schema import features as names
from beam_tfr.schema.columns import typed
from beam_tfr.schema.errors import DataError
from beam_tfr.schema.extensions import EXTENSIONS
from beam_tfr.schema.naming import parse_file_name
from beam_tfr.storage import PendingFile
from examples.export.conditions import matching

BOXES = "boxes"  # [xmin, ymin, xmax, ymax] as shares of the image, of each object
MASKS = "masks"  # of each object, as COCO's run lengths
# A column with such a name gets a _.
_OWN = ("key", "split", "class", "label", BOXES, MASKS, "image", "mask", "file_name")
_APART = {*names.FEATURES, *names.BOX_NAMES, names.MASK, names.OBJECT_MASK, names.LABEL, names.TEXT}


class Sample(NamedTuple):
    """A record.

    Attributes:
        values: feature -> values.
        about: what it says besides its images: `key`, `split`, `class`, `boxes`, columns.
    """

    values: Mapping[str, list[Any]]
    about: dict[str, Any]

    @property
    def extension(self) -> str:
        """The extension of the image's format: "jpg", "png", "webp"."""
        return EXTENSIONS[self.values[names.FORMAT][0].decode()][0]

    @property
    def image(self) -> bytes:
        """The encoded image."""
        return bytes(self.values[names.ENCODED][0])

    @property
    def mask(self) -> bytes | None:
        """Its mask, a PNG; None if there is none."""
        return next(iter(self.values.get(names.MASK, ())), None)


@dataclasses.dataclass(frozen=True)
class Shard:
    """A shard of a dataset that is exported.

    Attributes:
        dataset: the dataset.
        split, entry: its split and its file.
        where: column -> value that the records must have; all of them.
        output: folder of the export.
        report: called with the number of images (0 or more) and of bytes that were processed.
    """

    dataset: Manifest
    split: str
    entry: ShardEntry
    where: Mapping[str, str]
    output: str
    report: Callable[[int, int], object] = lambda *_: None

    @property
    def path(self) -> str:
        return storage.join(self.dataset.folder, self.entry.file)

    def records(self) -> Iterator[bytes]:
        """The serialized records that are wanted, in order.

        Raises:
            DataError: the shard is damaged, or another than the manifest's, which is known only at its end.
            OSError: it cannot be read.
        """
        wanted, digest = matching(self.dataset, self.entry, self.where), hashlib.sha256()
        found = RecordFile(self.path, on_bytes=digest.update, max_record_bytes=longest_in(self.entry.num_bytes))
        for record in found:
            is_wanted = found.record in wanted
            self.report(int(is_wanted), len(record))
            if is_wanted:
                yield record
        if (found.record, digest.hexdigest()) != (self.entry.num_examples, self.entry.sha256):
            raise DataError(f"{self.path}: has other bytes than the manifest says; {REPAIR}")

    def samples(self) -> Iterator[Sample]:
        """The records that are wanted, parsed; raises as `records` does."""
        for record in self.records():
            try:
                sample = sample_of(self.dataset, self.split, parse_example(record))
            except (ValueError, LookupError) as error:
                raise DataError(f"{self.path}: a record is not as the manifest says: {error}; {REPAIR}") from None
            yield sample


@contextlib.contextmanager
def create(output: str, path: str) -> Iterator[PendingFile]:
    """Opens a file of an export, which appears at the end of the block, if that is reached."""
    storage.make_folder(path.rpartition("/")[0])
    with storage.create(path, scratch=storage.work_path(output, "")) as file:
        yield file
        file.commit()


def shard_name(entry: ShardEntry) -> str:
    """`train-00003-of-00016`."""
    return parse_file_name(entry.file)[1]  # type: ignore[index]  # the manifest's schema has this form


def sample_of(dataset: Manifest, split: str, values: dict[str, list[Any]]) -> Sample:
    """The sample of a parsed record."""
    about: dict[str, Any] = {"key": _text(values[names.FILENAME][0]), "split": split}
    if names.LABEL in values:
        texts = [text.decode() or None for text in values[names.TEXT]]
        about["class"] = texts if dataset.features[names.LABEL]["shape"] else texts[0]
    if names.SIDES[0] in values:
        about[BOXES] = [*zip(*(values[side] for side in names.SIDES), strict=True)]
    if names.OBJECT_MASK in dataset.features:
        size = values[names.HEIGHT][0], values[names.WIDTH][0]
        about[MASKS] = [run_lengths(mask, size) for mask in values[names.OBJECT_MASK]]
    for name, parts in dataset.points.items():
        about[column_name(name)] = _points([values[part] for part in parts])
    for name in own_columns(dataset):
        cells = [_cell(of) for of in values[name]]
        about[column_name(name)] = cells if dataset.features[name]["shape"] else cells[0]
    return Sample(values, about)


def _text(value: bytes) -> str:
    return value.decode("utf-8", "backslashreplace")


def _cell(value: Any) -> Any:
    """A value of a column for JSON, which has no NaN."""
    return _text(value) if isinstance(value, bytes) else value if value == value else None


def _points(parts: Sequence[Sequence[Any]]) -> list[Any]:
    """The points of each box: a list of x, y, visibility, x, …; or a list of x, y, x, … for each of its polygons."""
    *places, numbers = parts
    points, found = zip(*places, strict=True), []
    for number in numbers:
        polygons: list[list[Any]] = [[]]
        for point in itertools.islice(points, number):
            if math.isnan(point[0]):
                polygons.append([])
            else:
                polygons[-1] += point
        found.append(polygons[0] if len(places) > 2 else [*filter(None, polygons)])
    return found


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
