"""What travels along the arrows of the pipeline."""

from __future__ import annotations

import dataclasses
import json
from typing import NamedTuple

from beam_tfr.schema.counts import ShardInfo
from beam_tfr.schema.errors import RejectError
from beam_tfr.schema.plan import Shard


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


class ShardWork(NamedTuple):
    """A shard with all its references (encoded, in their final order); `finished` when nothing is left to do."""

    shard: Shard
    refs: list[bytes]
    finished: ShardInfo | None = None

    def done(self) -> Item | None:
        """The item that stands for the whole shard, where there is nothing to read: it is finished, or empty."""
        return Item(self.shard, 0, "", None, self.finished) if self.finished or not self.refs else None


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
