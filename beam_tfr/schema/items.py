"""Element types of the pipeline.

They are references, images, records, and the items that carry them.
"""

import dataclasses
import enum
import json
import operator
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, Self, TypeVar

from beam_tfr.schema.encoded_ref import (
    EncodedRef,
    join_labels,
    parse_label_ids,
    split_columns,
    split_labels,
    to_text,
)
from beam_tfr.schema.errors import RejectError
from beam_tfr.schema.palettes import Palette
from beam_tfr.schema.plan import Shard, ShardInfo, Unfinished

_T = TypeVar("_T")
BATCH_ITEMS = 16
BATCH_BYTES = 1 << 20  # 1 MiB


class ImageRef(NamedTuple):
    """A source image (or file, or row) as listed.

    It crosses the only shuffle, so its encoding is small.

    Attributes:
        key: path below the folder that all inputs share; names the image in records, rejects and
            hashes.
        size_bytes: as listed; 0 if unknown.
        generation: generation of the object (gs://), or modification time in ns (disk); 0 if
            unknown.
        crc32c: of the object, as listed (gs://); 0 if unknown.
        split: name of the split, or `NO_SPLIT`.
        labels: class names: one, empty if a row of a table has none; any number in a dataset with
            several labels per image; none in a dataset without labels.
        label_ids: of the classes, -1 for an empty name; None in a dataset without labels, and until
            the plan knows all classes.
        reason: a member of `REJECT_REASONS` if the image is already known to be unusable, else
            empty.
        detail: detail of the reason.
        place: of an image in an archive, see `inputs.archives`; empty for a file, and with a
            reason.
        columns: columns of a table row, as a serialized tf.train.Example; None without a table.
    """

    key: str
    size_bytes: int
    generation: int
    split: str
    labels: tuple[str, ...] = ()
    label_ids: tuple[int, ...] | None = None
    reason: str = ""
    detail: str = ""
    columns: bytes | None = None
    crc32c: int = 0
    place: str = ""

    def encode(self) -> bytes:
        """Encodes the reference in bytes, which `EncodedRef` describes."""
        crc32c = self.crc32c or ""
        labels = join_labels(self.labels)
        label_ids = "-" if self.label_ids is None else ",".join(map(str, self.label_ids))
        detail_or_place = self.detail if self.reason else self.place
        file = f"{self.key}\0{self.size_bytes}\0{self.generation}\0{crc32c}"
        text = f"{file}\0{self.split}\0{labels}\0{label_ids}\0{self.reason}\0{detail_or_place}"
        encoded = text.encode("utf-8", "surrogateescape")
        if self.columns is None:
            return encoded
        return encoded + b"\0" + self.columns

    @classmethod
    def decode(cls, ref: bytes) -> Self:
        """Decodes an encoded reference."""
        fields = EncodedRef.parse(ref)
        encoded_text, columns = split_columns(fields.rest)
        reason = fields.reason.decode()
        detail_or_place = to_text(encoded_text)
        return cls(
            key=to_text(fields.key),
            size_bytes=int(fields.size_bytes),
            generation=int(fields.generation),
            split=to_text(fields.split),
            labels=tuple(split_labels(fields.labels)),
            label_ids=parse_label_ids(fields.label_ids),
            reason=reason,
            detail=detail_or_place if reason else "",
            columns=columns,
            crc32c=int(fields.crc32c or 0),
            place="" if reason else detail_or_place,
        )


DUPLICATE = "duplicate"  # the reason of a reject that is a copy of an image that is kept


class Reject(NamedTuple):
    """A rejected image and the reason: one line of rejects.jsonl."""

    key: str
    stage: str
    reason: str
    detail: str

    def to_json(self) -> str:
        return json.dumps(self._asdict(), sort_keys=True)


class KnownState(enum.Enum):
    """How the source of an image compares with that of its record.

    The dataset that is updated has the record.
    """

    SAME = enum.auto()  # so is its reference: the record stays as it is
    UNCHANGED = enum.auto()  # with another reference: other labels, say
    REREAD = enum.auto()  # has to be read to know; the reference is the same
    UNSURE = enum.auto()  # has to be read to know; the reference is another
    CHANGED = enum.auto()

    @property
    def same_source(self) -> bool:
        """Whether the source need not be read to know that it is the same."""
        return self in (KnownState.SAME, KnownState.UNCHANGED)

    @property
    def same_reference(self) -> bool:
        """Whether the reference says the same of the image as then, such as its labels."""
        return self in (KnownState.SAME, KnownState.REREAD)


class KnownImage(NamedTuple):
    """What an update knows of an image.

    Attributes:
        number: of its record in the dataset that is updated, in the order of the manifest; for a
            reject, of the record behind it.
        state: whether its source has changed since.
        reject: the reject, if it stays one.
        is_added: whether it counts as new all the same.
    """

    number: int
    state: KnownState
    reject: Reject | None = None
    is_added: bool = False

    @property
    def may_be_copied(self) -> bool:
        """Whether its record may stand for its source."""
        return self.reject is None and self.state is not KnownState.CHANGED

    @property
    def is_stable(self) -> bool:
        """Whether its record stays as it is."""
        return self.reject is None and self.state is KnownState.SAME and not self.is_added


class ShardWork(NamedTuple):
    """A shard with its references in order.

    Attributes:
        shard: its place in the plan.
        refs: encoded references.
        finished: if an earlier run wrote it.
        known_images: by position, with an update.
    """

    shard: Shard
    refs: list[bytes]
    finished: ShardInfo | None = None
    known_images: Mapping[int, KnownImage] = {}

    def whole_item(self) -> "Item | None":
        """The item for the whole shard, if it is finished or empty; else None."""
        if self.refs and not self.finished:
            return None
        return Item(self.shard, 0, "", None, self.finished)

    @property
    def size_bytes(self) -> int:
        """Bytes of the references."""
        return sum(map(len, self.refs))


class Appearance(NamedTuple):
    """What a picture looks like.

    Attributes:
        mean, std: mean and standard deviation over all channels, 0 to 255.
        phash: perceptual hash, 32 bytes; zeros of a picture that is too small for one.
    """

    mean: float
    std: float
    phash: bytes


class Geometry(NamedTuple):
    """Which part of a source became which part of its record.

    `images.mapping` maps points and boxes with it.

    Rectangles are (left, top, right, bottom) in continuous coordinates: the first pixel covers 0 to
    1.

    Attributes:
        height, width: of the source, as stored.
        orientation: of the source, 1 to 8.
        turned: whether it was undone, so that the record shows the upright image; false with
            --ignore_orientation.
        window: the part of the source that is used; of the upright source if `turned`, else of the
            stored one.
        content: the part of the record that it fills; less than all of it with --resize pad.
    """

    height: int = 0
    width: int = 0
    orientation: int = 1
    turned: bool = True
    window: tuple[int, int, int, int] = (0, 0, 0, 0)
    content: tuple[int, int, int, int] = (0, 0, 0, 0)


class Accompanied(NamedTuple):
    """The bytes of an image and of the images beside it.

    The images beside it are by their keys in elements.
    """

    image: bytes
    companions: Mapping[str, bytes]


@dataclasses.dataclass(frozen=True, slots=True)
class Image:
    """A converted image.

    Attributes:
        encoded: bytes in `format`.
        format: "jpeg", "png", "webp"; or "raw": a serialized TensorProto, uint8 [h, w, channels].
        height, width, channels, colorspace: those of the stored image.
        source_height, source_width: in pixels, upright.
        source_format: "jpeg", "png", "heic", …
        source_sha256: hex digest of the source bytes.
        channel_sums: sum over all stored pixels before encoding, per channel; with --color keep
            always three, and a gray image counts for each. Empty without statistics.
        channel_squares: sum of squares, likewise.
        adjusted: members of `ADJUSTMENTS`, sorted.
        damaged: whether the source is; None where such images are rejected.
        source_bytes: size of the source.
        source_crc32c: CRC-32C of the source.
        appearance: of the stored pixels before encoding, without a margin; of a JPEG that is only
            checked, of as little as an eighth of its size.
        geometry: which part of the source it shows; all zeros, which map nothing, if
            `convert_image` did not make it.
        companions: feature -> PNG of the same size, of its mask and of others: see
            `features.companions`.
        palette: whose indices its mask has; None without.
    """

    encoded: bytes
    format: str
    height: int
    width: int
    channels: int
    colorspace: str
    source_height: int
    source_width: int
    source_format: str
    source_sha256: str
    channel_sums: tuple[int, ...]
    channel_squares: tuple[int, ...]
    adjusted: tuple[str, ...] = ()
    damaged: bool | None = None
    source_bytes: int = 0
    source_crc32c: int = 0
    appearance: Appearance | None = None
    geometry: Geometry = Geometry()
    companions: Mapping[str, bytes] = dataclasses.field(default_factory=dict)
    palette: Palette | None = None


@dataclasses.dataclass(frozen=True, slots=True)
class Array:
    """An array read from a file.

    Attributes:
        tensor: a serialized TensorProto.
        shape: shape of the array.
        dtype: "float32", "bool", "string", …
        source_sha256: hex digest of the source bytes.
        source_bytes: size of the source.
        source_crc32c: CRC-32C of the source.
    """

    tensor: bytes
    shape: tuple[int, ...]
    dtype: str
    source_sha256: str
    source_bytes: int = 0
    source_crc32c: int = 0


class MadeValues(NamedTuple):
    """The values of a record, by feature; without those that are as in its reference."""

    values: Mapping[str, Sequence[Any]]


class CopiedRow(NamedTuple):
    """The row of the contents of a record that is copied.

    It lacks the columns that say where.
    """

    cells: Mapping[str, Any]


class Record(NamedTuple):
    """A serialized tf.train.Example, with what counts and contents need of it.

    Attributes:
        serialized: the Example.
        image: its image, if any, for the statistics.
        values: what is known of its values; None if the Example has to be parsed for them.
        made: what was known only while it was made: column of the contents -> value.
        copied: whether an update takes it from the dataset that is there.
        sums: as in `output.sidecars.Sidecar`, of such a record, which has no image.
        label_ids: those that it holds, if a crop dropped boxes; None for those of the reference.
    """

    serialized: bytes
    image: Image | None = None
    values: MadeValues | CopiedRow | None = None
    made: Mapping[str, Any] = {}
    copied: bool = False
    sums: bytes = b""
    label_ids: Sequence[int] | None = None


class CopiedRecords(NamedTuple):
    """Records that an update takes from the dataset as they are.

    They are the value of one item that stands for several images.

    Attributes:
        refs: encoded references.
        frames: serialized Examples, as `records.tfrecords.frame` frames them, one behind the other.
        sizes: of the frames.
        rows: their `pyarrow.Table` of contents, without the columns that say where they lie.
        sums: as in `output.sidecars.Sidecar`.
    """

    refs: Sequence[bytes]
    frames: bytes
    sizes: Sequence[int]
    rows: Any
    sums: Sequence[bytes]


Value = (
    bytes
    | Accompanied
    | Image
    | Array
    | Record
    | CopiedRecords
    | Reject
    | ShardInfo
    | Unfinished
    | None
)


class Change(enum.StrEnum):
    """What an update does with the record of an image; counted in `Counts.before`."""

    NEW = ""  # there is none
    KEPT = "kept"
    RENAMED = "renamed"  # only its classes have other names
    RELABELLED = "relabelled"
    CHANGED = "changed"


class Item(NamedTuple):
    """One planned image on its way through the stages of its shard.

    Attributes:
        shard: the shard that it belongs to.
        position: 0 to shard.total - 1, in the shard's order; 0 for an empty shard, which is written
            too. That of the first if the value stands for several.
        uri: URI of the source.
        ref: the reference; None if the item stands for several images (`CopiedRecords`), or for a
            whole shard (empty, already finished, or unfinished).
        value: source bytes or `Accompanied`, then `Image` or `Array`, then `Record`; or
            `CopiedRecords`; or `Reject`; or `ShardInfo`; or `Unfinished`; None for an empty shard,
            and for a row of a table, whose reference holds everything.
        guarded: whether it is decoded in a guarded process because attempts at its shard crashed.
        change: what an update does with the record of the image in the dataset.
    """

    shard: Shard
    position: int
    uri: str
    ref: ImageRef | None
    value: Value
    guarded: bool = False
    change: Change = Change.NEW

    def reject(self, stage: str, error: RejectError) -> "Item":
        """The item with a `Reject` in place of its value."""
        key = self.ref.key if self.ref else ""
        return self.with_value(Reject(key, stage, error.reason, error.detail))

    def with_value(self, value: Value) -> "Item":
        """The item with another value."""
        return Item(self.shard, self.position, self.uri, self.ref, value, self.guarded, self.change)

    @property
    def images(self) -> int:
        """The number of images that it stands for."""
        if isinstance(self.value, CopiedRecords):
            return len(self.value.refs)
        return int(self.ref is not None)

    @property
    def size_bytes(self) -> int:
        """Bytes of an image or file in the value."""
        match self.value:
            case Accompanied(image, companions):
                return len(image) + sum(map(len, companions.values()))
            case (
                bytes(data)
                | Image(encoded=data)
                | Array(tensor=data)
                | Record(serialized=data)
                | CopiedRecords(frames=data)
            ):
                return len(data)
        return 0


def group_values(
    values: Iterable[_T], size: Callable[[_T], int], most: int, most_bytes: int
) -> Iterator[list[_T]]:
    """Groups values.

    A group ends with so many of them, or so many bytes, whichever comes first.
    """
    group = list[_T]()
    total = 0
    for value in values:
        group.append(value)
        total += size(value)
        if len(group) == most or total >= most_bytes:
            yield group
            group = []
            total = 0
    if group:
        yield group


def batch_items(items: Iterable[Item]) -> Iterator[list[Item]]:
    """Groups items, so that each step handles several with warm caches."""
    return group_values(items, operator.attrgetter("size_bytes"), BATCH_ITEMS, BATCH_BYTES)
