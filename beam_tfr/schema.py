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
import unicodedata
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

# name -> (dtype, shape) of one record; `RAW` instead of `ENCODED` with --encoding raw, see `features_of`.
FEATURES: dict[str, tuple[str, tuple[int, ...]]] = {
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
LABEL_FEATURES: dict[str, tuple[str, tuple[int, ...]]] = {LABEL: ("int64", ()), TEXT: ("bytes", ())}


def features_of(encoding: str, *, labelled: bool) -> dict[str, tuple[str, tuple[int, ...]]]:
    """name -> (dtype, shape) of the records of a dataset with this --encoding."""
    features = {RAW if encoding == "raw" and name == ENCODED else name: about for name, about in FEATURES.items()}
    return features | LABEL_FEATURES if labelled else features


# Files of a dataset beside its shards.
MANIFEST_FILE = "manifest.json"
LABELS_FILE = "labels.txt"
REJECTS_FILE = "rejects.jsonl"
WORK_FOLDER = ".beam_tfr"  # plan, lock, sidecars, unfinished files; gone when the dataset is complete

NO_SPLIT = "none"  # where images stand that no split could be found for: rejects only, no records

# Why an image is not in the dataset: a closed list, so that reports can be counted and compared.
REJECT_REASONS: dict[str, str] = {
    "layout-mismatch": "the key does not have the parts that --layout names",
    "unknown-class": "the class is not in the file that --classes names",
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
    """One source image as it was listed; crosses the only shuffle, so its encoding is small (`encode`, `decode`).

    Attributes:
        key: path below the folder that all inputs share; names the image in records, rejects and hashes.
        size_bytes: as listed.
        generation: of the object (gs://), or modification time in ns (disk).
        split: of the dataset, or `NO_SPLIT`.
        label: class name; empty in a dataset without labels.
        label_id: of the class, once the plan knows all classes; -1 before and in a dataset without labels.
        reason: already known not to be usable (a member of `REJECT_REASONS`), else empty.
        detail: of the reason.
    """

    key: str
    size_bytes: int
    generation: int
    split: str
    label: str = ""
    label_id: int = -1
    reason: str = ""
    detail: str = ""

    def encode(self) -> bytes:
        """NUL-separated text: no part can hold a NUL, since no path does."""
        return "\0".join(map(str, self)).encode("utf-8", "surrogateescape")

    @classmethod
    def decode(cls, data: bytes) -> ImageRef:
        key, size_bytes, generation, split, label, label_id, reason, detail = data.decode(
            "utf-8", "surrogateescape"
        ).split("\0")
        return cls(key, int(size_bytes), int(generation), split, label, int(label_id), reason, detail)


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
        fields = dataclasses.asdict(self)
        del fields["complete"]
        return sha256_hex(canonical_json(fields))

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


class Record(NamedTuple):
    """A serialized tf.train.Example, and the image in it, for the shard's statistics."""

    serialized: bytes
    image: Image


class Item(NamedTuple):
    """One planned image on its way through the stages of its shard.

    Attributes:
        shard: where it belongs.
        position: 0 to shard.total - 1, in the shard's order; 0 in a shard without images, so that it is written too.
        uri: of the source.
        ref: of the source; None where the item stands for a whole shard (empty, or already finished).
        value: source bytes, then `Image`, then `Record`; or `Reject`; or `ShardInfo`; None in an empty shard.
    """

    shard: Shard
    position: int
    uri: str
    ref: ImageRef | None
    value: bytes | Image | Record | Reject | ShardInfo | None


@dataclasses.dataclass(slots=True, kw_only=True)
class ShardInfo:
    """The books of one shard: what the manifest is made of, and what a resume reads from the sidecar.

    Attributes:
        shard: where it stands.
        file: name in the output folder; empty for shards of `NO_SPLIT`, which have no records.
        num_examples: records written.
        num_bytes: of the file.
        sha256: of the file.
        records_sha256: of the records before compression, each preceded by its length as 8 bytes little-endian.
        rejected: reason -> count.
        class_counts: label id -> records; empty in a dataset without labels.
        adjusted: member of `ADJUSTMENTS` -> records.
        pixels: stored pixels in all.
        channel_sums, channel_squares: integer sums over them, per channel.
        source_sizes: longest source side, rounded up to a power of two -> records.
    """

    shard: Shard
    file: str = ""
    num_examples: int = 0
    num_bytes: int = 0
    sha256: str = ""
    records_sha256: str = ""
    rejected: dict[str, int] = dataclasses.field(default_factory=dict)
    class_counts: dict[int, int] = dataclasses.field(default_factory=dict)
    adjusted: dict[str, int] = dataclasses.field(default_factory=dict)
    pixels: int = 0
    channel_sums: list[int] = dataclasses.field(default_factory=list)
    channel_squares: list[int] = dataclasses.field(default_factory=list)
    source_sizes: dict[int, int] = dataclasses.field(default_factory=dict)

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
