"""Chooses the records for the page, reads them by their numbers, and draws them."""

import base64
import dataclasses
import io
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from PIL import Image as PillowImage

from beam_tfr.console.terminal import printable
from beam_tfr.dataset.class_samples import NO_CLASS, ClassSamples
from beam_tfr.dataset.conditions import value_text
from beam_tfr.dataset.lookup import RecordLookup
from beam_tfr.dataset.manifest import Manifest
from beam_tfr.inspection import pictures
from beam_tfr.inspection.legend import DrawnShapes
from beam_tfr.inspection.records import InspectedRecord, describe_values, label_of, read_records
from beam_tfr.reporting.measuring import MOST_OF_CLASS
from beam_tfr.schema.encoded_ref import to_text
from beam_tfr.schema.naming import parse_shard_names

SIDE = 128  # pixels of a thumbnail
SIDE_WITH_SHAPES = 192  # pixels of a thumbnail with boxes, masks or points
_SMALL_SIDE = 128  # pixels of a thumbnail in the list of findings
MOST_TEXT = 200  # characters of a key or a name to show
_MOST_SAMPLES = 120
_MOST_BESIDE_UNLIKE = 8  # samples of a class whose unlike images are shown too
_MOST_UNLIKE = 240  # images that look unlike their classes
_MOST_UNLIKE_OF_CLASS = 24
_RECORDS_AT_A_TIME = 64
_MOST_BYTES = 1_200_000  # total size of all data URLs
_QUALITIES = (82, 70, 55, 40, 25, 10)


@dataclasses.dataclass
class Thumbnail:
    """A picture on the page.

    Attributes:
        image: the picture.
        key: key of its record or reject, as text.
        caption: the text below the picture: class or classes, and split.
        url: the picture as a data URL; empty until `encode_all`.
    """

    image: PillowImage.Image
    key: str
    caption: str
    url: str = ""

    @property
    def text(self) -> str:
        """The alternative text of the picture."""
        return ", ".join(filter(None, [self.caption, self.key]))

    def make_small(self) -> "Thumbnail":
        """Makes a smaller picture for the list of findings."""
        if self.image.width <= _SMALL_SIDE:
            return self
        image = self.image.resize((_SMALL_SIDE, _SMALL_SIDE), PillowImage.Resampling.BOX)
        return Thumbnail(image, self.key, self.caption)


class RecordName(NamedTuple):
    """The name of a record on the page: its key as text, and its split."""

    key: str
    split: str


class SourceName(NamedTuple):
    """The source that a record was made from.

    Attributes:
        key: the full key.
        sha256: SHA-256 of the source's bytes, in hex; empty if the record lacks it.
    """

    key: str
    sha256: str


@dataclasses.dataclass(frozen=True)
class ClassRow:
    """Samples of a class.

    Attributes:
        name: name of the class; empty for records without a class.
        records: numbers of the samples.
        unlike: the images that look least like the others of the class.
        compared: number of images that were compared.
    """

    name: str
    records: Sequence[int]
    unlike: Sequence[int] = ()
    compared: int = 0


def choose_classes(
    dataset: Manifest, samples: ClassSamples, unlike: Mapping[int, Sequence[int]]
) -> list[ClassRow]:
    """Chooses the classes whose samples are shown, in the order of their labels.

    If there are too many classes, chooses the most frequent ones, the rarest ones, and some in
    between, a third each.

    Args:
        dataset: the dataset.
        samples: some records of each class.
        unlike: class -> its images, with those that look least like the class first.
    """
    names = dataset.class_names
    labels = [label for label in range(len(names)) if samples.of_class(label, 1)]
    if len(labels) > _MOST_SAMPLES:
        third = _MOST_SAMPLES // 3
        ordered = sorted(labels, key=lambda label: (dataset.class_totals[names[label]], label))
        step = len(ordered) // third
        between = ordered[third:-third][::step]
        labels = sorted({*ordered[:third], *between, *ordered[-third:]})
    each = min(max(_MOST_SAMPLES // max(len(labels), 1), 1), MOST_OF_CLASS)
    most_unlike = min(_MOST_UNLIKE // max(len(labels), 1), _MOST_UNLIKE_OF_CLASS)
    rows = []
    for label in labels:
        looks = unlike.get(label, ())
        most = min(each, _MOST_BESIDE_UNLIKE) if looks else each
        records = samples.of_class(label, most)
        rows.append(ClassRow(names[label], records, looks[:most_unlike], len(looks)))
    bare = samples.of_class(NO_CLASS, MOST_OF_CLASS)
    if bare:
        rows.append(ClassRow("", bare))
    return rows


class RecordPictures:
    """Draws records of a dataset by their numbers, each once.

    Args:
        dataset: the dataset.

    Attributes:
        shapes: the shapes that are drawn on the records.
    """

    def __init__(self, dataset: Manifest) -> None:
        self._key = dataset.names.key
        self._lookup = RecordLookup.whole(dataset)
        self._sha256 = dataset.names.sha256
        self._unshown = {self._key, dataset.names.label, dataset.names.text}
        self._drawn = dict[int, Thumbnail]()
        self._sources = dict[int, SourceName]()
        self.shapes = DrawnShapes()

    def read(self, numbers: Iterable[int]) -> None:
        """Reads and draws records.

        Raises:
            DataError: a record is damaged, or the dataset was replaced.
        """
        missing = sorted({*numbers} - self._drawn.keys())
        for begin in range(0, len(missing), _RECORDS_AT_A_TIME):
            some = missing[begin : begin + _RECORDS_AT_A_TIME]
            for record in read_records(self._lookup, some):
                self._drawn[record.number] = self._draw(record)

    def name_records(self, numbers: Iterable[int]) -> dict[int, RecordName]:
        """Maps each record to its name.

        Raises the errors of `read`.
        """
        names = {}
        wanted = sorted({*numbers})
        for begin in range(0, len(wanted), _RECORDS_AT_A_TIME):
            some = wanted[begin : begin + _RECORDS_AT_A_TIME]
            for record in read_records(self._lookup, some):
                key = show_text(value_text(_first_bytes(record, self._key)))
                names[record.number] = RecordName(key, self.find_split(record.number))
        return names

    def describe_rows(self, numbers: Sequence[int]) -> list[str]:
        """Returns the values of records that were made from table rows, as text."""
        texts = []
        for record in read_records(self._lookup, numbers):
            values = [
                f"{name} {describe_values(name, record.values[name])}"
                for name in sorted(record.values)
                if name not in self._unshown
            ]
            texts.append(show_text(", ".join([label_of(record.values), *values])))
        return texts

    def get(self, number: int) -> Thumbnail:
        """Returns the thumbnail of a record that has been read."""
        return self._drawn[number]

    def find_source(self, number: int) -> SourceName:
        """Returns the source of a record that has been read."""
        return self._sources[number]

    def list_drawn(self) -> list[Thumbnail]:
        """Returns the thumbnails of all records that have been read."""
        return [*self._drawn.values()]

    def find_split(self, number: int) -> str:
        """Returns the split of a record."""
        part, _ = self._lookup.locate(number)
        return parse_shard_names(part.file).split

    def _draw(self, record: InspectedRecord) -> Thumbnail:
        side = SIDE_WITH_SHAPES if pictures.is_drawn(record) else SIDE
        image = pictures.draw_thumbnail(record, side)
        key = _first_bytes(record, self._key)
        sha256 = value_text(_first_bytes(record, self._sha256))
        self._sources[record.number] = SourceName(to_text(key), sha256)
        self.shapes.add(record.values)
        caption = " · ".join(
            filter(None, [label_of(record.values), self.find_split(record.number)])
        )
        return Thumbnail(image, show_text(value_text(key)), show_text(caption))


def _first_bytes(record: InspectedRecord, feature: str) -> bytes:
    """Returns the first value of a bytes feature of a record, or empty bytes if there is none."""
    match record.values.get(feature):
        case [bytes(text), *_]:
            return text
    return b""


def show_text(text: str) -> str:
    """Returns untrusted text on one line, shortened, and without invisible characters."""
    line = printable(text)
    return line if len(line) <= MOST_TEXT else f"{line[:MOST_TEXT]}…"


def encode_all(thumbnails: Sequence[Thumbnail]) -> None:
    """Gives each thumbnail its URL, in the best quality that keeps their total size in bounds."""
    for quality in _QUALITIES:
        urls = [_encode(thumbnail.image, quality) for thumbnail in thumbnails]
        if sum(map(len, urls)) <= _MOST_BYTES:
            break
    for thumbnail, url in zip(thumbnails, urls, strict=True):
        thumbnail.url = url


def _encode(image: PillowImage.Image, quality: int) -> str:
    file = io.BytesIO()
    image.save(file, "JPEG", quality=quality, optimize=True)
    data = base64.b64encode(file.getvalue()).decode()
    return f"data:image/jpeg;base64,{data}"
