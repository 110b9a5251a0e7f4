"""What travels along each arrow of the pipeline, and the names in the records. Standard library only.

    MatchImages ──▶ ImageRef ──PlanShards──▶ ShardWork ──ReadImages──▶ Item(bytes) ──ResizeImages──▶ Item(Image)
        ──BuildExamples──▶ Item(record bytes) ──WriteShards──▶ ShardInfo ──WriteManifest──▶ Manifest

Between ReadImages and WriteShards an `Item` may hold a `Reject` (an image that could not be used: it keeps its place)
or a `ShardInfo` (an earlier run finished this shard) instead; every stage hands those on untouched.
"""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import json
import re
import unicodedata
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

FORMAT_VERSION = 1  # of manifest.json and of everything under .beam_tfr/

# The record: the feature names that TensorFlow's own image models use.
ENCODED = "image/encoded"  # bytes: the encoded image
RAW = "image/raw"  # bytes, in its place with --encoding raw: a serialized TensorProto, uint8 [height, width, channels]
FORMAT = "image/format"  # bytes: "jpeg", "png", "webp", "raw"; with --encoding keep also "bmp", "gif"
HEIGHT = "image/height"  # int64, pixels, of what is stored
WIDTH = "image/width"  # int64, pixels, of what is stored
CHANNELS = "image/channels"  # int64
COLORSPACE = "image/colorspace"  # bytes: "RGB", "Gray"; with --keep_all also "CMYK"
SOURCE_HEIGHT = "image/source/height"  # int64, pixels, of the source, upright
SOURCE_WIDTH = "image/source/width"  # int64, pixels, of the source, upright
SOURCE_FORMAT = "image/source/format"  # bytes: "jpeg", "heic", …
FILENAME = "image/filename"  # bytes: the key
SHA256 = "image/key/sha256"  # bytes: hex digest of the source file
LABEL = "image/class/label"  # int64, 0-based line number in labels.txt
TEXT = "image/class/text"  # bytes: the class name

# Records that are no images, see `IMAGE_ENCODINGS`.
FILE_BYTES = "file/bytes"  # bytes: --encoding bytes: the file
FILE_NAME = "file/name"  # bytes: the key
FILE_SHA256 = "file/sha256"  # bytes: hex digest of the source file
ARRAY_RAW = "array/raw"  # bytes: --encoding array: a serialized TensorProto
ARRAY_SHAPE = "array/shape"  # int64, one for each dimension
ARRAY_DTYPE = "array/dtype"  # bytes: "float32", "bool", "string", …
ROW_KEY = "row/key"  # bytes: --encoding row: the key
CLASS_LABEL = "class/label"  # int64, as `LABEL`
CLASS_TEXT = "class/text"  # bytes, as `TEXT`

Feature = tuple[str, tuple[int, ...]]  # dtype, shape; [-1] is a list of any length

# name -> (dtype, shape) of one record; `RAW` instead of `ENCODED` with --encoding raw, see `features_of`.
FEATURES: dict[str, Feature] = {
    ENCODED: ("bytes", ()),
    FORMAT: ("bytes", ()),
    HEIGHT: ("int64", ()),
    WIDTH: ("int64", ()),
    CHANNELS: ("int64", ()),
    COLORSPACE: ("bytes", ()),
    FILENAME: ("bytes", ()),
    SHA256: ("bytes", ()),
    SOURCE_HEIGHT: ("int64", ()),
    SOURCE_WIDTH: ("int64", ()),
    SOURCE_FORMAT: ("bytes", ()),
}
LABEL_FEATURES: dict[str, Feature] = {LABEL: ("int64", ()), TEXT: ("bytes", ())}
_FILE_FEATURES: dict[str, Feature] = {FILE_NAME: ("bytes", ()), FILE_SHA256: ("bytes", ())}
_OTHER_FEATURES: dict[str, dict[str, Feature]] = {
    "bytes": {FILE_BYTES: ("bytes", ()), **_FILE_FEATURES},
    "array": {
        ARRAY_RAW: ("bytes", ()),
        ARRAY_SHAPE: ("int64", (-1,)),
        ARRAY_DTYPE: ("bytes", ()),
        **_FILE_FEATURES,
    },
    "row": {ROW_KEY: ("bytes", ())},
}
DICT_NAMES = ("image", "weight")  # what the readers put into a dict beside the features of a record
IMAGE_ENCODINGS = ("jpeg", "png", "webp", "raw", "keep")
OTHER_ENCODINGS = tuple(_OTHER_FEATURES)  # of whole files, arrays, rows of a table


class Names(NamedTuple):
    """What the key and the label of a record are called; `sha256` is empty where nothing is read from a file."""

    key: str
    sha256: str
    label: str
    text: str


def names_of(encoding: str) -> Names:
    if encoding in IMAGE_ENCODINGS:
        return Names(FILENAME, SHA256, LABEL, TEXT)
    return Names(*((ROW_KEY, "") if encoding == "row" else (FILE_NAME, FILE_SHA256)), CLASS_LABEL, CLASS_TEXT)


def features_of(options: Mapping[str, Any], *, labelled: bool) -> dict[str, Feature]:
    """name -> (dtype, shape) of the records of a dataset, by its options: `encoding`, and those of a table.

    Raises:
        ValueError: the type of a column is none, or it has the name of another feature.
    """
    encoding = options["encoding"]
    if encoding in IMAGE_ENCODINGS:
        features = {RAW if encoding == "raw" and name == ENCODED else name: about for name, about in FEATURES.items()}
    else:
        features = dict(_OTHER_FEATURES[encoding])
    if labelled:
        names = names_of(encoding)
        shape = (-1,) if options.get("multi_label") else ()
        features |= {names.label: ("int64", shape), names.text: ("bytes", shape)}
    for name, kind in (options.get("feature_columns") or {}).items():
        if features.setdefault(name, about := column_feature(kind)) is not about:
            raise ValueError(f"{name!r} is there twice")
    return features


_COLUMN = re.compile(r"(?:(int64|float|bytes)|enum\([^()]+\))(\[\])?(=.*)?", re.DOTALL)


def column_feature(kind: str) -> Feature:
    """("int64", (-1,)) of "int64[]"; the types of columns are those of `tables.columns.parse_type`.

    Raises:
        ValueError: no such type.
    """
    match = _COLUMN.fullmatch(kind)
    if match is None:
        raise ValueError(f"{kind!r} is no type of a column")
    return match[1] or "int64", (-1,) if match[2] else ()


# Files of a dataset beside its shards.
MANIFEST_FILE = "manifest.json"
LABELS_FILE = "labels.txt"
REJECTS_FILE = "rejects.jsonl"
WORK_FOLDER = ".beam_tfr"  # plan, lock, sidecars, unfinished files; gone when the dataset is complete

NO_SPLIT = "none"  # where images stand that no split could be found for: rejects only, no records

# Why an image is not in the dataset: a closed list, so that reports can be counted and compared.
REJECT_REASONS: dict[str, str] = {
    "bad-value": "a value in the table is missing, or does not fit the type of its column",
    "layout-mismatch": "the key does not have the parts that --layout names",
    "unknown-class": "the class is not in the file that --classes names",
    "not-an-array": "the content is no .npy array of numbers or texts",
    "damaged-array": "the .npy array has more or fewer bytes than its header promises",
    "not-found": "the file was listed and is no longer there",
    "changed-while-reading": "the object was replaced after it was listed",
    "unreadable": "the file is there and its bytes cannot be read",
    "empty-file": "the file has no bytes",
    "not-an-image": "the content is of no image format that is read",
    "damaged-image": "the content is of an image format and does not decode to the end",
    "unsupported-image": "an image of a kind that no decoder here reads; the detail names the extra that does",
    "too-many-pixels": "the header promises more pixels than are decoded, or the result would have too many",
    "too-many-scans": "a progressive JPEG with so many scans that it would take minutes",
    "too-few-pixels": "smaller than --min_pixels",
    "extreme-aspect": "longer and thinner than --max_aspect, or than the encoding can hold",
    "several-frames": "an animation or a file of several pages, with --frames reject",
    "decode-timeout": "took longer than --max_decode_s",
    "crashed-decoder": "ended the guarded process that decoded it",
    "file-too-large": "the file has more bytes than are read",
}

# What was done to images that did not come as ordinary ones; counted in the manifest, a closed list too.
ADJUSTMENTS: dict[str, str] = {
    "wrong-extension": "the name ends like another format than the content is of",
    "rotated": "turned or mirrored as EXIF says",
    "first-frame": "the first of several frames or pages was taken",
    "alpha-composited": "transparent pixels were laid over --background",
    "depth-scaled": "more than 8 bits a sample were scaled to 8",
    "cmyk-converted": "CMYK became RGB",
    "profile-converted": "an embedded colour profile other than sRGB was converted",
    "profile-ignored": "an embedded colour profile could not be used",
    "aspect-changed": "stretched by more than 1.2 in one direction",
    "enlarged": "has more rows or columns than the source",
    "re-encoded": "with --encoding keep: the file's own bytes could not be kept",
    "kept-unusual": "with --keep_all: kept though trainers show it turned or in wrong colours",
    "padding-ignored": "a JPEG with a few stray bytes in its header or before its end, sound otherwise",
}


TRACEBACK_VARIABLE = "BEAM_TFR_TRACEBACK"  # set: errors of a run come with the stack trace


class BeamTfrError(Exception):
    """Something the user can act on: shown as its message alone, never as a stack trace."""

    exit_code = 1


class UsageError(BeamTfrError):
    """The call is wrong: the message names the flag, the value, what is allowed and the cure."""

    exit_code = 2


class DataError(BeamTfrError):
    """The data is wrong, or a dataset is not what its manifest promises."""


class RunError(BeamTfrError):
    """The run failed: the disk, a permission, a runner that lost elements, another run in the folder."""


class InterruptedRunError(BeamTfrError):
    """The user asked for an end (Ctrl-C)."""

    exit_code = 130


class RejectError(Exception):
    """This one image cannot be used.

    Attributes:
        reason: one of `REJECT_REASONS`.
        detail: what was found, for a person.
        may_pass: another try later might succeed.
    """

    def __init__(self, reason: str, detail: str, *, may_pass: bool = False) -> None:
        if reason not in REJECT_REASONS:
            raise ValueError(f"unknown reject reason {reason!r}, known: {', '.join(REJECT_REASONS)}")
        super().__init__(f"{reason}: {detail}")
        self.reason = reason
        self.detail = detail
        self.may_pass = may_pass


class ImageRef(NamedTuple):
    """One source image (file, row) as it was listed; crosses the only shuffle, so its encoding is small.

    Attributes:
        key: path below the folder that all inputs share; names the image in records, rejects and hashes.
        size_bytes: as listed; 0 where it is not known.
        generation: of the object (gs://), or modification time in ns (disk); 0 where it is not known.
        split: of the dataset, or `NO_SPLIT`.
        labels: class names: one, empty where a row of a table has none; any number in a dataset with several labels
            an image; none in a dataset without labels.
        label_ids: of the classes, once the plan knows all of them; -1 for an empty name. None before, and in a
            dataset without labels.
        reason: already known not to be usable (a member of `REJECT_REASONS`), else empty.
        detail: of the reason.
        columns: of a row of a table, as a serialized tf.train.Example; None where no table is.
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

    def encode(self) -> bytes:
        """NUL-separated text, then the columns: no text can hold a NUL, since no path and no class does."""
        labels = "".join(f"\n{label}" for label in self.labels)
        label_ids = "-" if self.label_ids is None else ",".join(map(str, self.label_ids))
        parts = (self.key, self.size_bytes, self.generation, self.split, labels, label_ids, self.reason, self.detail)
        text = "\0".join(map(str, parts)).encode("utf-8", "surrogateescape")
        return text if self.columns is None else text + b"\0" + self.columns

    @classmethod
    def decode(cls, data: bytes) -> ImageRef:
        key, size_bytes, generation, split, labels, label_ids, reason, detail, *columns = data.split(b"\0", 8)
        return cls(
            _text(key),
            int(size_bytes),
            int(generation),
            _text(split),
            tuple(_text(labels).split("\n")[1:]),
            None if label_ids == b"-" else tuple(map(int, label_ids.split(b","))) if label_ids else (),
            _text(reason),
            _text(detail),
            columns[0] if columns else None,
        )


def _text(data: bytes) -> str:
    return data.decode("utf-8", "surrogateescape")


class Shard(NamedTuple):
    """One output file: the `number`-th (from 0) of `num_shards` of a split, for `total` planned images."""

    split: str
    number: int
    num_shards: int
    total: int
    plan_digest: str

    @property
    def name(self) -> str:
        return shard_name(self.split, self.number, self.num_shards)


class ShardWork(NamedTuple):
    """A shard with all its references (encoded, in their final order); `finished` when nothing is left to do."""

    shard: Shard
    refs: list[bytes]
    finished: ShardInfo | None = None

    def done(self) -> Item | None:
        """The item that stands for the whole shard, where there is nothing to read: it is finished, or empty."""
        return Item(self.shard, 0, "", None, self.finished) if self.finished or not self.refs else None


@dataclasses.dataclass(slots=True, kw_only=True)
class SplitPlan:
    """One split of the plan.

    Attributes:
        matched: images listed for it, those among them that are already known to be rejects included.
        num_shards: files (for `NO_SPLIT`: shards without a file).
        cuts: the order keys (hex) at which shards 1, 2, … begin; num_shards - 1 of them.
        class_counts: class name -> images listed.
    """

    matched: int
    num_shards: int
    cuts: list[str]
    class_counts: dict[str, int]


@dataclasses.dataclass(kw_only=True)
class Plan:
    """What a run will write, decided before anything is written; stands in .beam_tfr/plan.json while it runs.

    Attributes:
        name: prefix of the shard files.
        suffix: of the shard files, ".tfrecord.gz" or ".tfrecord".
        options: those that can change a record, a shard or a reject, as JSON values.
        input_digest: over all keys and sizes, in no order.
        labels: class names, in the order of their ids; None in a dataset without labels.
        splits: split name -> its plan.
        codecs: library -> version: whatever can change a byte of a record.
        generations: over keys, sizes and generations (or times): an input that changed while a run was dead shows.
        complete: the output already holds the dataset of this plan; not part of the digest.
    """

    name: str
    suffix: str
    options: dict[str, Any]
    input_digest: str
    labels: list[str] | None
    splits: dict[str, SplitPlan]
    codecs: dict[str, str]
    generations: str = ""
    complete: bool = False

    @property
    def options_digest(self) -> str:
        return sha256_hex(canonical_json(self.options))

    @property
    def digest(self) -> str:
        return sha256_hex(canonical_json(self.fields()))

    def fields(self) -> dict[str, Any]:
        """All that the digest covers, as JSON values."""
        fields = dataclasses.asdict(self)
        del fields["complete"]
        return fields

    @classmethod
    def from_fields(cls, fields: Mapping[str, Any]) -> Plan:
        return cls(**{**fields, "splits": {name: SplitPlan(**of) for name, of in fields["splits"].items()}})

    @functools.cached_property
    def label_ids(self) -> dict[str, int]:
        return {label: i for i, label in enumerate(self.labels or ())}

    @property
    def matched(self) -> int:
        return sum(split.matched for split in self.splits.values())

    def shards(self) -> list[str]:
        """Names of all planned shards, by split, then index."""
        return [
            shard_name(split, index, plan.num_shards)
            for split, plan in sorted(self.splits.items())
            for index in range(plan.num_shards)
        ]


class Reject(NamedTuple):
    """An image that is not in the dataset, and why: one line of rejects.jsonl."""

    key: str
    uri: str
    stage: str
    reason: str
    detail: str

    def to_json(self) -> str:
        return json.dumps(self._asdict(), sort_keys=True)


@dataclasses.dataclass(frozen=True, slots=True)
class Image:
    """A converted image.

    Attributes:
        encoded: bytes in `format`.
        format: "jpeg", "png", "webp", "bmp", "gif"; or "raw": a serialized TensorProto, uint8 [h, w, channels].
        height, width, channels, colorspace: of what is stored.
        source_height, source_width: in pixels, upright.
        source_format: "jpeg", "png", "heic", …
        source_sha256: hex digest of the source bytes.
        channel_sums: sum over all stored pixels before encoding, per channel; with --color keep of three channels, a
            gray image's counting for all of them.
        channel_squares: sum of squares, likewise.
        adjusted: members of `ADJUSTMENTS`, sorted.
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


@dataclasses.dataclass(frozen=True, slots=True)
class Array:
    """An array from a file.

    Attributes:
        tensor: a serialized TensorProto.
        shape: of it.
        dtype: "float32", "bool", "string", …
        source_sha256: hex digest of the source bytes.
    """

    tensor: bytes
    shape: tuple[int, ...]
    dtype: str
    source_sha256: str


class Record(NamedTuple):
    """A serialized tf.train.Example, and the image in it (if any), for the shard's statistics."""

    serialized: bytes
    image: Image | None = None


class Item(NamedTuple):
    """One planned image on its way through the stages of its shard.

    Attributes:
        shard: where it belongs.
        position: 0 to shard.total - 1, in the shard's order; 0 in a shard without images, so that it is written too.
        uri: of the source.
        ref: of the source; None where the item stands for a whole shard (empty, or already finished).
        value: source bytes, then `Image` or `Array`, then `Record`; or `Reject`; or `ShardInfo`; None in an empty
            shard, and of a row of a table, which is all in its reference.
    """

    shard: Shard
    position: int
    uri: str
    ref: ImageRef | None
    value: bytes | Image | Array | Record | Reject | ShardInfo | None

    def reject(self, stage: str, error: RejectError) -> Item:
        """The same place, with what is wrong with it."""
        key = self.ref.key if self.ref else ""
        return self._replace(value=Reject(key, self.uri, stage, error.reason, error.detail))


@dataclasses.dataclass(slots=True, kw_only=True)
class Counts:
    """What is counted of the images of a shard, and added up over shards.

    Attributes:
        num_examples: records written.
        num_bytes: of the files.
        rejected: reason -> count.
        class_counts: label id -> records; empty in a dataset without labels.
        adjusted: member of `ADJUSTMENTS` -> records.
        pixels: stored pixels in all.
        channel_sums, channel_squares: integer sums over them, per channel; empty without pixels.
        source_sizes: longest source side, rounded up to a power of two -> records.
    """

    num_examples: int = 0
    num_bytes: int = 0
    rejected: dict[str, int] = dataclasses.field(default_factory=dict)
    class_counts: dict[int, int] = dataclasses.field(default_factory=dict)
    adjusted: dict[str, int] = dataclasses.field(default_factory=dict)
    pixels: int = 0
    channel_sums: list[int] = dataclasses.field(default_factory=list)
    channel_squares: list[int] = dataclasses.field(default_factory=list)
    source_sizes: dict[int, int] = dataclasses.field(default_factory=dict)

    @property
    def num_rejected(self) -> int:
        return sum(self.rejected.values())

    def add(self, other: Counts) -> None:
        for field in dataclasses.fields(Counts):
            mine, more = getattr(self, field.name), getattr(other, field.name)
            if isinstance(mine, dict):
                for key, count in more.items():
                    mine[key] = mine.get(key, 0) + count
            elif isinstance(mine, list):
                setattr(self, field.name, add_sums(mine, more))
            else:
                setattr(self, field.name, mine + more)


def add_sums(sums: Sequence[int], more: Sequence[int]) -> list[int]:
    """Sums per channel; where nothing is counted yet there are none."""
    return [a + b for a, b in zip(sums, more, strict=True)] if sums and more else [*(sums or more)]


@dataclasses.dataclass(slots=True, kw_only=True)
class ShardInfo(Counts):
    """The books of one shard: what the manifest is made of, and what a resume reads from the sidecar.

    Attributes:
        shard: where it stands.
        file: name in the output folder; empty for shards of `NO_SPLIT`, which have no records.
        sha256: of the file.
        records_sha256: of the records before compression, each preceded by its length as 8 bytes little-endian.
    """

    shard: Shard
    file: str = ""
    sha256: str = ""
    records_sha256: str = ""

    def to_json(self) -> str:
        return json.dumps(dataclasses.asdict(self), sort_keys=True, separators=(",", ":"))

    @classmethod
    def from_json(cls, text: str | bytes) -> ShardInfo:
        fields = json.loads(text)
        fields["shard"] = Shard(*fields["shard"])
        for name in ("class_counts", "source_sizes"):  # JSON has only string keys
            fields[name] = {int(key): count for key, count in fields[name].items()}
        return cls(**fields)


def shard_name(split: str, number: int, num_shards: int) -> str:
    """`train-00003-of-00016`: Beam's own naming, behind the split."""
    return f"{split}-{number:05d}-of-{num_shards:05d}"


def is_class_name(text: object) -> bool:
    """Whether a text can be a line of labels.txt and come back as it was: no control characters, no line ends, no
    spaces at its ends, no lone surrogates.
    """
    return (
        isinstance(text, str)
        and text.splitlines() == [text]
        and text == text.strip()
        and not text.startswith("\ufeff")  # a byte order mark, which readers of text files drop
        and not any(unicodedata.category(char) in ("Cc", "Cs") for char in text)
    )


def sha256_hex(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def canonical_json(value: Any) -> bytes:
    """The one JSON text of a value, for digests: sorted keys, no spaces, ASCII, no NaN."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False).encode("ascii")
