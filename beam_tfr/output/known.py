"""Finds known facts about the images of a dataset, so that updates can copy unchanged records.

The sidecars next to a dataset hold the references of its images and the sums of their pixels; the
contents hold everything else that is not in a record. A copied record therefore leads to the same
shard, contents and statistics as a newly made record. `known_records` reads the records.
"""

import dataclasses
import functools
import json
import struct
from collections.abc import Sequence
from typing import NamedTuple

from beam_tfr import storage
from beam_tfr.dataset.base import BaseDataset, PlannedShard, planned_shards
from beam_tfr.inputs.parquet import is_in_parquet
from beam_tfr.output import sidecars
from beam_tfr.output.sidecars import Sidecar
from beam_tfr.schema.encoded_ref import EncodedRef, key_of, to_bytes
from beam_tfr.schema.errors import DataError
from beam_tfr.schema.items import ImageRef, KnownImage, KnownState, Reject
from beam_tfr.schema.plan import Shard, ShardInfo

_EARLIER_REF = struct.Struct("<qQQI8s")  # the fields of `_EarlierRef`
# Reasons for rejects that may be temporary.
_PASSING = frozenset({"not-found", "unreadable", "changed-while-reading", "decode-timeout"})


class KnownSource(NamedTuple):
    """An image of a finished dataset.

    Attributes:
        ref: encoded reference of the image.
        number: number of the record, in the order of the manifest; for a reject, the number of the
            next record.
        reject: the reject, if the image was rejected.
    """

    ref: bytes
    number: int
    reject: Reject | None


def read_sources(folder: str, shard: PlannedShard) -> list[KnownSource] | None:
    """Reads the images of a shard, in order; returns None if the sidecar is missing."""
    sidecar = sidecars.read_published_sidecar(folder, shard)
    if sidecar is None or len(sidecar.refs) != shard.images:
        return None
    if shard.has_keys and not sidecar.has_keys:
        return None
    rejects = dict[bytes, Reject]()
    for line in sidecar.reject_lines:
        reject = Reject(**json.loads(line))
        rejects[to_bytes(reject.key)] = reject
    sources = list[KnownSource]()
    number = shard.first
    for ref in sidecar.refs:
        source = KnownSource(ref, number, rejects.get(key_of(ref)))
        sources.append(source)
        if source.reject is None:
            number += 1
    return sources


def require_sources(folder: str, shard: PlannedShard) -> list[KnownSource]:
    """Reads the images of a shard, in order.

    Raises:
        DataError: the sidecar of the shard is missing.
    """
    sources = read_sources(folder, shard)
    if sources is None:
        raise DataError(
            f"{folder}: .sources, which records the sources of each shard, lacks {shard.name}; "
            "`beam-tfr update DIR --input …` writes it again"
        )
    return sources


@functools.lru_cache(maxsize=2)
def _shards_by_name(base: BaseDataset) -> dict[str, PlannedShard]:
    return {shard.name: shard for shard in planned_shards(base.read_manifest())}


def find_equal_shard(base: BaseDataset, info: ShardInfo) -> ShardInfo | None:
    """Returns the dataset's shard with the name and bytes of a new shard, or None.

    The shard that was just written takes the place of this shard.
    """
    shard = _shards_by_name(base).get(info.shard.name)
    if shard is None or shard.entry is None:
        return None
    if (shard.entry.file, shard.entry.sha256) != (info.file, info.sha256):
        return None
    sidecar = sidecars.read_published_sidecar(base.folder, shard)
    return _find_in_place(base, sidecar.info) if sidecar else None


def _find_in_place(base: BaseDataset, info: ShardInfo) -> ShardInfo | None:
    """Returns a shard of the dataset if its files are unchanged; otherwise None.

    On gs://, moving the files changed their generations.
    """
    contents = info.contents and info.contents._replace(built="")
    info = dataclasses.replace(info, built="", contents=contents)
    return sidecars.find_files(base.folder, info, moved=storage.is_gcs(base.folder))


def reuse_shard(base: BaseDataset, shard: Shard, refs: Sequence[bytes]) -> ShardInfo | None:
    """Returns the dataset's shard with the same references and recipe, which is reused unchanged.

    Writes the sidecar of this shard for the new dataset. Returns None if there is no such shard, or
    if its sources must be read to tell whether they have changed.
    """
    planned = _shards_by_name(base).get(shard.name)
    if planned is None or base.compare == "checksum" or not base.copies:
        return None
    sidecar = sidecars.read_published_sidecar(base.folder, planned)
    if sidecar is None or not _is_reusable(sidecar, base, shard, refs):
        return None
    info = _find_in_place(base, sidecar.info)
    if info is None:
        return None
    info = dataclasses.replace(info, shard=shard, before={"kept": info.num_examples})
    lines = [line.decode().rstrip("\n") for line in sidecar.reject_lines]
    return sidecars.write_sidecar(base.folder, info, lines, refs=refs, sums=sidecar.sums)


def _is_reusable(sidecar: Sidecar, base: BaseDataset, shard: Shard, refs: Sequence[bytes]) -> bool:
    """Whether the sidecar alone proves that writing the shard again would give the same bytes."""
    if sidecar.refs != refs or not shard.continues(sidecar.info.shard):
        return False
    if sidecar.reject_lines and not base.with_rejects:
        return False
    if base.compare == "names":
        return True
    if not _PASSING.isdisjoint(sidecar.info.rejected):
        return False
    # Only a generation proves that a source is unchanged, and table rows have none.
    return all(EncodedRef.parse(ref).generation != b"0" for ref in refs)


class _EarlierRef(NamedTuple):
    """The known fields of a reference that the dataset was made from.

    Attributes:
        number: as in `KnownSource`.
        size_bytes, generation, crc32c: as in `ImageRef`.
        fingerprint: fingerprint of the encoded reference.
    """

    number: int
    size_bytes: int
    generation: int
    crc32c: int
    fingerprint: bytes


def encode_source(source: KnownSource) -> bytes:
    """Encodes the facts about an image that `match_image` needs, compactly for the shuffle."""
    ref = EncodedRef.parse(source.ref)
    earlier = _EarlierRef(
        number=source.number,
        size_bytes=int(ref.size_bytes),
        generation=int(ref.generation),
        crc32c=int(ref.crc32c or 0),
        fingerprint=sidecars.fingerprint_ref(source.ref),
    )
    reject = source.reject.to_json() if source.reject else ""
    return ref.key + b"\0" + _EARLIER_REF.pack(*earlier) + reject.encode()


def match_image(ref: bytes, encoded: bytes, base: BaseDataset) -> KnownImage | None:
    """Compares a reference with the known facts about its image.

    Returns None if these facts are of no use, for example because the image is now rejected.

    Args:
        ref: an encoded reference.
        encoded: the result of `encode_source` for the same key.
        base: the dataset with the known image.
    """
    start = len(key_of(encoded)) + 1
    earlier = _EarlierRef(*_EARLIER_REF.unpack_from(encoded, start))
    reject = encoded[start + _EARLIER_REF.size :]
    compare = base.compare
    state = _compare_source(ref, earlier, compare) if base.copies else KnownState.REMADE
    if state is KnownState.SAME and not reject:  # most images, which have no reason
        return KnownImage(earlier.number, state)
    if EncodedRef.parse(ref).reason:
        return None
    if not reject:
        return KnownImage(earlier.number, state)
    known_reject = Reject(**json.loads(reject))
    if not _stays_reject(known_reject, state, compare):
        return None
    return KnownImage(earlier.number, state, known_reject)


def _stays_reject(reject: Reject, state: KnownState, compare: str) -> bool:
    """Whether the source of a reject would certainly be rejected again."""
    may_pass = reject.reason in _PASSING and compare != "names"
    return state.same_source and not may_pass


def _compare_source(ref: bytes, earlier: _EarlierRef, compare: str) -> KnownState:
    """Compares the source of an image with the earlier source, using their references."""
    same_ref = earlier.fingerprint == sidecars.fingerprint_ref(ref)
    if compare == "names":
        return KnownState.SAME if same_ref else KnownState.UNCHANGED
    trusts_generation = earlier.generation != 0 and compare != "checksum"
    if trusts_generation and same_ref:
        return KnownState.SAME
    state = _compare_listed(ImageRef.decode(ref), earlier, trusts_generation=trusts_generation)
    if state is not None:
        return state
    return KnownState.REREAD if same_ref else KnownState.UNSURE


def _compare_listed(
    ref: ImageRef, earlier: _EarlierRef, *, trusts_generation: bool
) -> KnownState | None:
    """Returns whether a source has changed, according to its listing; None if it must be read."""
    is_estimate = is_in_parquet(ref.place)
    if ref.size_bytes != earlier.size_bytes and not is_estimate:
        return KnownState.CHANGED
    if trusts_generation and ref.generation == earlier.generation:
        return KnownState.UNCHANGED
    if not earlier.crc32c or not ref.crc32c:
        return None
    return KnownState.UNCHANGED if ref.crc32c == earlier.crc32c else KnownState.CHANGED
