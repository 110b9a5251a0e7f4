"""Defines the elements of the pipeline: references, images, records, and items that hold them."""

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

    References pass through the only shuffle, so their encoding is small.

    Attributes:
        key: path below the folder that all inputs share; names the image in records, rejects and
            hashes.
        size_bytes: size as listed; 0 if unknown.
        generation: generation of the object (gs://), or modification time in ns (disk); 0 if
            unknown.
        crc32c: CRC-32C of the object, as listed (gs://); 0 if unknown.
        split: name of the split, or `NO_SPLIT`.
        labels: class names. In a dataset with one label per image, a single name, which is empty if
            a table row has none. In a dataset with several labels, any number. Otherwise none.
        label_ids: ids of the classes, -1 for an empty name; None in a dataset without labels, and
            until all classes are known.
        reason: a member of `REJECT_REASONS` if the image is already known to be unusable, else
            empty.
        detail: detail of the reason.
        place: place of an image in an archive, see `inputs.archives`; empty for a file, and if
            there is a reason.
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
        """Encodes the reference to the bytes that `EncodedRef` describes."""
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


DUPLICATE = "duplicate"  # the reason for a reject that is a copy of another image


class Reject(NamedTuple):
    """A rejected image and the reason: one line of rejects.jsonl."""

    key: str
    stage: str
    reason: str
    detail: str

    def to_json(self) -> str:
        return json.dumps(self._asdict(), sort_keys=True)


class KnownState(enum.Enum):
    """The result of comparing an image's source with that of its record in the old dataset."""

    SAME = enum.auto()  # source and reference are the same: the record stays as it is
    UNCHANGED = enum.auto()  # the source is the same; the reference has changed, such as its labels
    REREAD = enum.auto()  # the source must be read to be compared; the reference is the same
    UNSURE = enum.auto()  # the source must be read to be compared; the reference has changed
    CHANGED = enum.auto()
    REMADE = enum.auto()  # the record is made again in any case, and compared with the old one

    @property
    def same_source(self) -> bool:
        """Whether the source is known to be unchanged without reading it."""
        return self in (KnownState.SAME, KnownState.UNCHANGED)

    @property
    def same_reference(self) -> bool:
        """Whether the reference, for example its labels, is the same as before."""
        return self in (KnownState.SAME, KnownState.REREAD)


class KnownImage(NamedTuple):
    """The state of an image that an update finds in the old dataset.

    Attributes:
        number: number of its record in the dataset being updated, in the order of the manifest; for
            a reject, the number of the next record.
        state: whether its source has changed.
        reject: the reject, if the image stays rejected.
        is_added: whether the image counts as new nevertheless.
    """

    number: int
    state: KnownState
    reject: Reject | None = None
    is_added: bool = False

    @property
    def may_be_copied(self) -> bool:
        """Whether the image's record may be copied instead of reading the source."""
        return self.reject is None and self.state is not KnownState.CHANGED

    @property
    def is_stable(self) -> bool:
        """Whether the image's record stays unchanged."""
        return self.reject is None and self.state is KnownState.SAME and not self.is_added


class ShardWork(NamedTuple):
    """A shard with its references in order.

    Attributes:
        shard: the shard as planned, without its references.
        refs: encoded references.
        finished: the result of an earlier run that wrote the shard, if there is one.
        known_images: position in the shard -> image in the dataset being updated; empty without an
            update.
    """

    shard: Shard
    refs: list[bytes]
    finished: ShardInfo | None = None
    known_images: Mapping[int, KnownImage] = {}

    def whole_item(self) -> "Item | None":
        """Returns the item for the whole shard if it is finished or empty; otherwise None."""
        if self.refs and not self.finished:
            return None
        return Item(self.shard, 0, "", None, self.finished)

    @property
    def size_bytes(self) -> int:
        """The size of the references in bytes."""
        return sum(map(len, self.refs))


class Appearance(NamedTuple):
    """The look of a picture: its brightness, contrast and hash.

    Attributes:
        mean, std: mean and standard deviation over all channels, 0 to 255.
        phash: perceptual hash, 32 bytes; zeros for a picture that is too small to be hashed.
    """

    mean: float
    std: float
    phash: bytes


class Geometry(NamedTuple):
    """The part of a source that is used, and the part of the record that it fills.

    `images.mapping` uses it to map points and boxes. Rectangles are (left, top, right, bottom) in
    continuous coordinates, in which the first pixel covers 0 to 1.

    Attributes:
        height, width: size of the source, as stored.
        orientation: EXIF orientation of the source, 1 to 8.
        turned: whether the orientation was undone, so that the record shows the upright image;
            false with --ignore_orientation.
        window: the part of the source that is used, in the upright source if `turned`, else in the
            stored source.
        content: the part of the record that the window fills; less than all of it with
            --resize pad.
    """

    height: int = 0
    width: int = 0
    orientation: int = 1
    turned: bool = True
    window: tuple[int, int, int, int] = (0, 0, 0, 0)
    content: tuple[int, int, int, int] = (0, 0, 0, 0)


class Accompanied(NamedTuple):
    """The bytes of an image, and of its masks and other images by their keys in elements."""

    image: bytes
    companions: Mapping[str, bytes]


@dataclasses.dataclass(frozen=True, slots=True)
class Image:
    """A converted image.

    Attributes:
        encoded: bytes in `format`.
        format: "jpeg", "png", "webp"; or "raw": a serialized TensorProto, uint8 [h, w, channels].
        height, width, channels, colorspace: those of the stored image.
        source_height, source_width: size of the upright source in pixels.
        source_format: "jpeg", "png", "heic", …
        source_sha256: hex digest of the source bytes.
        channel_sums: sum over all stored pixels before encoding, per channel; with --color keep,
            there are always three sums, and gray images count toward each. Empty without
            statistics.
        channel_squares: sum of squares, likewise.
        adjusted: members of `ADJUSTMENTS`, sorted.
        damaged: whether the source is damaged; None if damaged images are rejected.
        source_bytes: size of the source.
        source_crc32c: CRC-32C of the source.
        appearance: appearance of the stored pixels before encoding, without margins; for a JPEG
            that is decoded only to check it, of pixels at a reduced scale, at least 1/8 per side.
        geometry: which part of the source the image shows; all zeros, which map nothing, if
            `convert_image` did not make the image.
        companions: feature -> PNG of the same size, for the mask and the other images of pairs: see
            `features.companions`.
        palette: the palette whose indices the mask holds; None if there is none.
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
    """The values of a record by feature, except those in its reference."""

    values: Mapping[str, Sequence[Any]]


class CopiedRow(NamedTuple):
    """The row of a copied record in the contents, without the columns that locate it in a shard."""

    cells: Mapping[str, Any]


class Record(NamedTuple):
    """A serialized tf.train.Example, with the facts that counts and contents need.

    Attributes:
        serialized: the Example.
        image: its image, if any, for the statistics.
        values: the known values; None if the Example must be parsed to get them.
        made: column of the contents -> value, for values known only while the record is made.
        copied: whether an update copies the record from the existing dataset.
        sums: for a copied record, which has no image, its sums as in `output.sidecars.Sidecar`.
        label_ids: ids of the remaining classes if a crop dropped boxes; None for the ids in the
            reference.
    """

    serialized: bytes
    image: Image | None = None
    values: MadeValues | CopiedRow | None = None
    made: Mapping[str, Any] = {}
    copied: bool = False
    sums: bytes = b""
    label_ids: Sequence[int] | None = None


class CopiedRecords(NamedTuple):
    """Records that an update copies unchanged from the existing dataset.

    One item carries them, and stands for several images.

    Attributes:
        refs: encoded references.
        frames: serialized Examples, framed by `records.tfrecords.frame` and joined.
        sizes: size of each frame in bytes.
        rows: their `pyarrow.Table` of contents, without the columns that locate records in shards.
        sums: sums of each record, as in `output.sidecars.Sidecar`.
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
    """The change that an update makes to the record of an image, as counted in `Counts.before`."""

    NEW = ""  # there is no record yet
    KEPT = "kept"
    RENAMED = "renamed"  # only the names of its classes change
    RELABELLED = "relabelled"
    CHANGED = "changed"


class Item(NamedTuple):
    """One planned image on its way through the stages of its shard.

    Attributes:
        shard: the shard that the image belongs to.
        position: 0 to shard.total - 1, in the shard's order; 0 for an empty shard, which is also
            written; the position of the first image if the value stands for several.
        uri: URI of the source.
        ref: the reference; None if the item stands for several images (`CopiedRecords`), or for a
            whole shard (empty, already finished, or unfinished).
        value: source bytes or `Accompanied`, then `Image` or `Array`, then `Record`; or
            `CopiedRecords`; or `Reject`; or `ShardInfo`; or `Unfinished`; None for an empty shard,
            and for a table row, whose reference holds everything.
        guarded: whether a guarded process decodes the image, because attempts at its shard crashed.
        change: how an update changes the image's record in the dataset.
        earlier: CRC-32C of the image's record in the dataset being updated, if only a comparison
            with the new record shows whether it has changed.
    """

    shard: Shard
    position: int
    uri: str
    ref: ImageRef | None
    value: Value
    guarded: bool = False
    change: Change = Change.NEW
    earlier: int | None = None

    def reject(self, stage: str, error: RejectError) -> "Item":
        """Returns the item with a `Reject` as its value."""
        key = self.ref.key if self.ref else ""
        return self.with_value(Reject(key, stage, error.reason, error.detail))

    def with_value(self, value: Value) -> "Item":
        """Returns a copy of the item with a new value."""
        shard, position, uri, ref, _, guarded, change, earlier = self
        return Item(shard, position, uri, ref, value, guarded, change, earlier)

    @property
    def images(self) -> int:
        """The number of images that the item stands for."""
        if isinstance(self.value, CopiedRecords):
            return len(self.value.refs)
        return int(self.ref is not None)

    @property
    def size_bytes(self) -> int:
        """The size in bytes of the image or file in the value."""
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
    """Groups values; a group ends at `most` values or `most_bytes` bytes, whichever comes first."""
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
    """Groups items, so that each step handles several while caches are warm."""
    return group_values(items, operator.attrgetter("size_bytes"), BATCH_ITEMS, BATCH_BYTES)
