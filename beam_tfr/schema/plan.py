"""Defines the plan of what a run will write, and the counts of what it wrote."""

import bisect
import dataclasses
import functools
import itertools
import json
import math
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from beam_tfr.schema.dataset import json_digest
from beam_tfr.schema.differences import find_new_codecs, find_other_codecs
from beam_tfr.schema.encodings import noun_of
from beam_tfr.schema.naming import shard_name
from beam_tfr.schema.palettes import Palette

REJECTS_PER_SHARD = 10_000  # images in a shard of `NO_SPLIT`, which has no file


class Shard(NamedTuple):
    """Shard `number` (from 0) of `num_shards` in a split, for `total` planned images.

    `recipe` is the recipe of the plan: shards with equal recipes, references and codecs have equal
    bytes. `codecs` are the plan's codecs, as JSON.
    """

    split: str
    number: int
    num_shards: int
    total: int
    plan_digest: str
    recipe: str = ""
    codecs: str = "{}"

    @property
    def name(self) -> str:
        return shard_name(self.split, self.number, self.num_shards)

    def continues(self, earlier: "Shard") -> bool:
        """Whether an earlier shard has the same records as this one, given equal references.

        If `adds_codecs`, a reject of the earlier shard may be a record in this one.
        """
        if self.recipe != earlier.recipe:
            return False
        return not find_other_codecs(json.loads(earlier.codecs), json.loads(self.codecs))

    def adds_codecs(self, earlier: "Shard") -> bool:
        """Whether this shard has codecs that were missing when an earlier shard was written."""
        return bool(find_new_codecs(json.loads(earlier.codecs), json.loads(self.codecs)))


@dataclasses.dataclass(slots=True, kw_only=True)
class SplitPlan:
    """One split of the plan.

    Attributes:
        matched: images listed for the split, including those already known to be rejects.
        num_shards: number of shards, each with a file except in `NO_SPLIT`.
        cuts: the num_shards - 1 order keys (hex) at which shards 1, 2, … begin.
        class_counts: class name -> number of listed images.
    """

    matched: int
    num_shards: int
    cuts: list[str] = dataclasses.field(repr=False)
    class_counts: dict[str, int]

    def first_rank(self, number: int) -> int:
        """Returns the rank of a shard's first image in the split, from 0."""
        return first_rank(self.matched, self.num_shards, number)

    def shard_size(self, number: int) -> int:
        """Returns the number of images of a shard."""
        return shard_size(self.matched, self.num_shards, number)

    def find_shard(self, order_key: bytes) -> int:
        """Returns the number of the shard that an image belongs to, from its order key."""
        return bisect.bisect_right(self.cuts, order_key.hex())


def first_rank(images: int, num_shards: int, number: int) -> int:
    """Returns the rank of the first image of shard `number` in its split, from 0."""
    return number * images // num_shards


def shard_size(images: int, num_shards: int, number: int) -> int:
    """Returns how many images of a split shard `number` has; sizes differ by at most one."""
    end = first_rank(images, num_shards, number + 1)
    return end - first_rank(images, num_shards, number)


def count_reject_shards(images: int) -> int:
    """Returns the number of shards of `NO_SPLIT`."""
    return math.ceil(images / REJECTS_PER_SHARD)


@dataclasses.dataclass(kw_only=True)
class Plan:
    """The plan of what a run will write; kept in .beam_tfr/plan.json during the run.

    Attributes:
        name: prefix of the shard files.
        suffix: suffix of the shard files, ".tfrecord.gz" or ".tfrecord".
        options: the options that can change a record, a shard or a reject, as JSON values.
        input_digest: digest of all keys and sizes, in any order.
        labels: class names, in the order of their ids; None in a dataset without labels.
        splits: split name -> its plan.
        codecs: library -> version on the workers, for every library that can change a byte of a
            shard.
        generations: digest of keys, sizes and generations (or times), to notice input that changed
            between runs.
        complete: whether the output already holds the dataset of this plan; not part of the digest.
        provisional: whether a part of the sample could not be read. Then the number of shards may
            differ next time, so this dataset is not published. Not part of the digest.
        num_bytes: estimated size of the dataset and of copies in the work folder; 0 if unknown; not
            part of the digest.
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
    provisional: bool = False
    num_bytes: int = 0

    @property
    def digest(self) -> str:
        return json_digest(self.fields())

    @property
    def recipe(self) -> str:
        """The digest of everything that determines the records, except input and codecs."""
        return json_digest([self.name, self.suffix, self.options])

    def continues(self, earlier: "Plan") -> bool:
        """Whether finished shards of an earlier plan may be kept as shards of this one."""
        if self.recipe != earlier.recipe:
            return False
        return not find_other_codecs(earlier.codecs, self.codecs)

    def fields(self) -> dict[str, Any]:
        """Returns everything that the digest covers, as JSON values."""
        fields = dataclasses.asdict(self)
        del fields["complete"], fields["provisional"], fields["num_bytes"]
        return fields

    @classmethod
    def from_fields(cls, fields: Mapping[str, Any]) -> "Plan":
        splits = {name: SplitPlan(**split) for name, split in fields["splits"].items()}
        return cls(**{**fields, "splits": splits})

    @property
    def noun(self) -> str:
        """The plural noun for the converted objects: "images", "files" or "rows"."""
        return noun_of(self.options["encoding"])

    @property
    def input_option(self) -> str:
        """The option for the input, for error messages."""
        return "`input=`" if "layout" in self.options else "`table=`"

    @functools.cached_property
    def label_ids(self) -> dict[str, int]:
        return {label: label_id for label_id, label in enumerate(self.classes)}

    @property
    def classes(self) -> list[str]:
        """The class names; empty in a dataset without labels."""
        return self.labels or []

    @property
    def matched(self) -> int:
        return sum(split.matched for split in self.splits.values())

    @property
    def num_shards(self) -> int:
        return sum(split.num_shards for split in self.splits.values())

    def shards(self) -> list[str]:
        """Lists the names of all planned shards, by split, then by number."""
        names = list[str]()
        for split, plan in sorted(self.splits.items()):
            for number in range(plan.num_shards):
                names.append(shard_name(split, number, plan.num_shards))
        return names


@dataclasses.dataclass(slots=True, kw_only=True)
class Counts:
    """Counts of the images in a shard, or their sums over shards.

    Attributes:
        num_examples: records written.
        num_bytes: bytes of the shard files.
        rejected: reason -> number of rejects.
        class_counts: label id -> records; empty in a dataset without labels.
        adjusted: member of `ADJUSTMENTS` -> records.
        pixels: stored pixels of the images that have sums.
        channel_sums, channel_squares: integer sums over those pixels per channel; empty without
            pixels.
        cut_ppm: sum over all sources of the fraction of their area that is cropped away to match
            the shape of the record, in millionths.
        source_sizes: `size_bucket` of the source -> records.
        boxes: size of boxes, "clipped" or "dropped" -> number of boxes; see
            `features.box_counts`.
        box_numbers: number of boxes -> records with this number.
        mask_pixels: value of masks -> stored pixels; see `features.mask_counts`.
        mask_images: value of masks -> records.
        mask_numbers: number of values in a mask -> records with this number.
        mask_examples: number of values in a mask -> key of the first such record in order.
        before: with an update, `Item.change` -> records, without new records.
    """

    num_examples: int = 0
    num_bytes: int = 0
    rejected: dict[str, int] = dataclasses.field(default_factory=dict)
    class_counts: dict[int, int] = dataclasses.field(default_factory=dict)
    adjusted: dict[str, int] = dataclasses.field(default_factory=dict)
    pixels: int = 0
    channel_sums: list[int] = dataclasses.field(default_factory=list)
    channel_squares: list[int] = dataclasses.field(default_factory=list)
    cut_ppm: int = 0
    source_sizes: dict[int, int] = dataclasses.field(default_factory=dict)
    boxes: dict[str, int] = dataclasses.field(default_factory=dict)
    box_numbers: dict[int, int] = dataclasses.field(default_factory=dict)
    mask_pixels: dict[int, int] = dataclasses.field(default_factory=dict)
    mask_images: dict[int, int] = dataclasses.field(default_factory=dict)
    mask_numbers: dict[int, int] = dataclasses.field(default_factory=dict)
    mask_examples: dict[int, str] = dataclasses.field(default_factory=dict)
    before: dict[str, int] = dataclasses.field(default_factory=dict)

    @property
    def num_rejected(self) -> int:
        return sum(self.rejected.values())

    def add(self, other: "Counts") -> None:
        for field in dataclasses.fields(Counts):
            mine = getattr(self, field.name)
            more = getattr(other, field.name)
            if field.name == "mask_examples":
                for key, example in more.items():
                    mine[key] = min(example, mine.get(key, example))
            elif isinstance(mine, dict):
                for key, count in more.items():
                    mine[key] = mine.get(key, 0) + count
            elif isinstance(mine, list):
                # One of the lists may be empty.
                channels = itertools.zip_longest(mine, more, fillvalue=0)
                setattr(self, field.name, [*map(sum, channels)])
            else:
                setattr(self, field.name, mine + more)


def sum_counts(parts: Iterable[Counts]) -> Counts:
    """Adds up counts."""
    total = Counts()
    for counts in parts:
        total.add(counts)
    return total


def size_bucket(height: int, width: int) -> int:
    """Returns the longest side in pixels, rounded up to a power of two."""
    return 1 << (max(height, width) - 1).bit_length()


class WrittenFile(NamedTuple):
    """A committed file.

    Attributes:
        built: name in the work folder until the file is published; empty if it is in its place.
        num_bytes: size of the file.
        sha256: SHA-256 of the file.
        generation: as in `storage.Entry`.
    """

    built: str
    num_bytes: int
    sha256: str
    generation: int


@dataclasses.dataclass(slots=True, kw_only=True)
class ShardInfo(Counts):
    """A finished shard, as written to its sidecar for the manifest and for resuming.

    Attributes:
        shard: the shard as planned.
        file: name in the dataset; empty for shards of `NO_SPLIT`, which have no records.
        sha256: SHA-256 of the file.
        records_sha256: the `RecordsDigest` of its records.
        rejects_sha256: SHA-256 of its reject lines.
        built: name of the file in the work folder until it is published; empty if the file is in
            its place.
        generation: generation of the file, as in `storage.Entry`.
        contents: the table of contents; None without a file.
        palettes: the palettes of its masks, as `add_palette` keeps them.
    """

    shard: Shard
    file: str = ""
    sha256: str = ""
    records_sha256: str = ""
    rejects_sha256: str = ""
    built: str = ""
    generation: int = 0
    contents: WrittenFile | None = None
    palettes: list[Palette] = dataclasses.field(default_factory=list)

    @property
    def written(self) -> WrittenFile:
        """The shard's file."""
        return WrittenFile(self.built, self.num_bytes, self.sha256, self.generation)

    def to_json(self) -> str:
        return json.dumps(dataclasses.asdict(self), sort_keys=True, separators=(",", ":"))


MOST_CAUSES = 3  # reasons for unreadable images that a shard or a run lists


@dataclasses.dataclass(frozen=True, kw_only=True)
class Unfinished:
    """A shard that is not written because some of its images cannot be read now.

    Attributes:
        shard: the shard as planned.
        causes: cause -> number of unreadable images, for the most frequent causes.
        images: number of unreadable images.
        example: URI of one of them.
        differs: True if all images can be read, but a repaired shard's bytes would differ from the
            shard that it replaces.
    """

    shard: Shard
    causes: dict[str, int]
    images: int
    example: str
    differs: bool = False
