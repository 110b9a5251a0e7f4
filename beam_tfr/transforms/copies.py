"""Finds the copies in a dataset, and rejects all images but one in each cluster of copies."""

import collections
import dataclasses
import functools
import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from typing import NamedTuple, Self

import apache_beam as beam
from apache_beam.pvalue import AsIter, AsSingleton, PBegin, PCollection

from beam_tfr.copies.images import read_hashed_images
from beam_tfr.copies.parts import Pairs, Parts
from beam_tfr.copies.search import check_distance
from beam_tfr.dataset.base import BaseDataset, PlannedShard
from beam_tfr.output.copied_images import CopiedImages
from beam_tfr.output.copy_details import parse_kept
from beam_tfr.output.known import require_sources
from beam_tfr.planning import packing
from beam_tfr.schema.dataset import TRAIN, sort_splits
from beam_tfr.schema.encoded_ref import EncodedRef, parse_pairs, to_bytes, to_text
from beam_tfr.schema.items import DUPLICATE
from beam_tfr.transforms.counting import FunctionDoFn, count
from beam_tfr.transforms.dataset_reading import read_shards, read_splits_of_records

_REASON = DUPLICATE.encode()


@dataclasses.dataclass(eq=False, repr=False)
class FindCopies(beam.PTransform):
    """Finds the copies in a dataset, by its contents and sidecars.

    The hashes are divided among workers, and one worker holds only the images that have copies.

    Attributes:
        base: the dataset.
        rejects: whether to find only the copies to reject, instead of all copies.
        only_torn: whether to skip clusters that are already in a single split.

    Output: packed (key, NUL, name of the cluster), as for `ChooseSplits.groups`. With `rejects`,
    packed (key, NUL, a sentence that names the image of which it is a copy), as `reject_copies`
    accepts them.
    """

    base: BaseDataset
    _: dataclasses.KW_ONLY
    rejects: bool = False
    only_torn: bool = True

    def expand(self, begin: PBegin) -> PCollection[bytes]:
        dataset = self.base.read_manifest()
        parts = Parts.choose(dataset.counts["written"], check_distance(dataset, None))
        divide = functools.partial(_divide_shard, base=self.base, parts=parts)
        divided = read_shards(begin, self.base, "Hashes", divide, tuple[int, bytes])
        linking = beam.ParDo(FunctionDoFn(functools.partial(_link_part, parts=parts)))
        pairs = divided | "GroupByPart" >> beam.GroupByKey() | "Link" >> linking
        find = functools.partial(
            _find_copies, base=self.base, rejects=self.rejects, only_torn=self.only_torn
        )
        finding = beam.ParDo(FunctionDoFn(find), AsIter(pairs)).with_output_types(bytes)
        return begin | beam.Create([None]) | "Find" >> finding


@dataclasses.dataclass(eq=False, repr=False)
class ReadDroppedCopies(beam.PTransform):
    """Reads from the sidecars of a dataset which copies were dropped.

    Attributes:
        base: the dataset.

    Output: the same as that of `FindCopies` with `rejects`.
    """

    base: BaseDataset

    def expand(self, begin: PBegin) -> PCollection[bytes]:
        read = functools.partial(_read_dropped, base=self.base)
        return read_shards(begin, self.base, "Dropped", read)


@dataclasses.dataclass(eq=False, repr=False)
class FollowCopies(beam.PTransform):
    """Finds images that take the place of a copy when a dataset is updated, and their splits.

    An image that is kept takes the place of the images dropped for it. An image that was dropped
    takes the place of the kept image if the kept image is gone, or if both may now become records.

    Attributes:
        before: the dataset.
        copies: the copies to drop now, from `FindCopies` with `rejects`; None if there are none.

    Output: packed (key, NUL, split), for images that were not records before.
    """

    before: BaseDataset
    copies: PCollection[bytes] | None = None

    def expand(self, begin: PBegin) -> PCollection[bytes]:
        before = begin | "DroppedBefore" >> ReadDroppedCopies(self.before)
        now = self.copies
        if now is None:
            now = begin | "NoneDropped" >> beam.Create([packing.pack_values([])])
        dropped = [_collect(before, "DroppedBeforeByKey"), _collect(now, "DroppedNowByKey")]
        linking = beam.Map(_Followers.link, *dropped).with_output_types(_Followers)
        linked = begin | "LinkFollowers" >> beam.Create([None]) | "Followers" >> linking
        placed = read_splits_of_records(begin, self.before)
        following = beam.FlatMap(_list_followers, AsSingleton(linked))
        followers = placed | "ListFollowers" >> following.with_output_types(tuple[bytes, bytes])
        choosing = beam.FlatMap(_choose_copied_split).with_output_types(bytes)
        return followers | "GroupByFollower" >> beam.GroupByKey() | "Choose" >> choosing


class _Followers(NamedTuple):
    """The images that may take the place of a copy.

    Attributes:
        of_record: key of a record of the dataset being updated -> keys of such images.
        keys: keys of all such images.
    """

    of_record: Mapping[bytes, Set[bytes]]
    keys: Set[bytes]

    @classmethod
    def link(cls, _: None, before: Mapping[bytes, bytes], now: Mapping[bytes, bytes]) -> Self:
        """Links dropped images to the records whose place they may take.

        Args:
            before: key of an image that was dropped -> the sentence about it.
            now: key of an image that is dropped now -> the sentence about it.
        """
        kept_now = {key: _find_kept(detail) for key, detail in now.items()}
        of_record = collections.defaultdict[bytes, set[bytes]](set)
        for key, kept in kept_now.items():
            of_record[key].add(kept)
        for key, detail in before.items():
            of_record[_find_kept(detail)].add(kept_now.get(key, key))
        return cls(dict(of_record), {key for keys in of_record.values() for key in keys})


def _list_followers(packed: bytes, followers: _Followers) -> Iterator[tuple[bytes, bytes]]:
    """Yields (key of an image that may take the place of a record, split of the record).

    For images that were records themselves, the split is an empty string.
    """
    for key, split in parse_pairs(packing.unpack_values(packed)).items():
        if key in followers.keys:
            yield key, b""
        for follower in followers.of_record.get(key, ()):
            yield follower, split


def _find_kept(detail: bytes) -> bytes:
    """Finds the key of the kept image in the sentence about a copy."""
    return to_bytes(parse_kept(to_text(detail))[0])


def _choose_copied_split(follower: tuple[bytes, Iterable[bytes]]) -> Iterator[bytes]:
    """Chooses a split for an image that takes the place of copies.

    If one of the copies was in train, the chosen split is train, since a model may have seen the
    copy; otherwise, the chosen split is the one that had most of the copies, or the first of
    several such splits.
    """
    key, values = follower
    splits = collections.Counter(split.decode() for split in values)
    if "" in splits:
        return iter(())
    most = max(splits.values())
    fullest = sort_splits(split for split, copies in splits.items() if copies == most)
    split = TRAIN if TRAIN in splits else fullest[0]
    return packing.pack_batches([key + b"\0" + split.encode()])


def _read_dropped(shard: PlannedShard, *, base: BaseDataset) -> Iterator[bytes]:
    values = list[bytes]()
    for source in require_sources(base.folder, shard):
        if source.reject and source.reject.reason == DUPLICATE:
            values.append(to_bytes(source.reject.key) + b"\0" + to_bytes(source.reject.detail))
    return packing.pack_batches(values)


def _divide_shard(
    shard: PlannedShard, *, base: BaseDataset, parts: Parts
) -> Iterator[tuple[int, bytes]]:
    """Divides the images of a shard among parts."""
    if shard.entry is None or not shard.entry.num_examples:
        return iter(())
    images = read_hashed_images(base.read_manifest(), shard.entry)
    if parts.distance is not None:
        count("unhashed-images", images.number - int(images.has_hash.sum()))
    return parts.divide(images, shard.first)


def _link_part(part: tuple[int, Iterable[bytes]], *, parts: Parts) -> Iterator[Pairs]:
    """Finds the copies in one part."""
    number, packs = part
    pairs = parts.link(number, packs)
    if len(pairs.list_rows()):
        yield pairs


def _find_copies(
    _: None, pairs: Iterable[Pairs], *, base: BaseDataset, rejects: bool, only_torn: bool
) -> Iterator[bytes]:
    copied = CopiedImages.find(base, Pairs.join(pairs))
    count("crowded-images", copied.crowded)
    values = copied.list_rejects() if rejects else copied.list_groups(only_torn=only_torn)
    return packing.pack_batches(values)


def reject_copies(refs: PCollection[bytes], copies: PCollection[bytes]) -> PCollection[bytes]:
    """Turns references to copies into rejects.

    Args:
        refs: encoded `ImageRef`s, packed by `packing.pack_batches`; the output is packed in the
            same way.
        copies: the output of `FindCopies` with `rejects`. Each worker holds all copies.
    """
    rejecting = beam.ParDo(FunctionDoFn(_reject_refs), _collect(copies, "CopiesByKey"))
    return refs | "RejectCopies" >> rejecting.with_output_types(bytes)


def _collect(packs: PCollection[bytes], label: str) -> AsSingleton:
    """Makes a side input, key -> value, from packed (key, NUL, value)."""
    joined = packs | f"All{label}" >> beam.combiners.ToList()
    return AsSingleton(joined | label >> beam.Map(_parse_values))


def _parse_values(packs: Sequence[bytes]) -> dict[bytes, bytes]:
    return parse_pairs(itertools.chain.from_iterable(map(packing.unpack_values, packs)))


def _reject_refs(packed: bytes, details: Mapping[bytes, bytes]) -> Iterator[bytes]:
    refs = list[bytes]()
    for encoded in packing.unpack_values(packed):
        ref = EncodedRef.parse(encoded)
        detail = details.get(ref.key)
        if detail is not None and not ref.reason:
            encoded = ref.encode_as_reject(_REASON, detail)
        refs.append(encoded)
    return packing.pack_batches(refs)
