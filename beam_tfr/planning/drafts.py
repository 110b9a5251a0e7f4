"""Drafts a plan, then finds where in the order each shard begins, without holding all keys at
once."""

import dataclasses
import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NoReturn

import numpy as np

from beam_tfr.planning.survey import Survey, buckets_of, order_keys
from beam_tfr.schema.dataset import MOST_SHARDS, NO_SPLIT
from beam_tfr.schema.encoded_ref import EncodedRef, key_of
from beam_tfr.schema.encodings import noun_of
from beam_tfr.schema.errors import DataError, UsageError
from beam_tfr.schema.naming import find_two_spellings
from beam_tfr.schema.plan import Plan, SplitPlan, count_reject_shards

DEFAULT_TARGET_BYTES = 100 << 20  # 100 MiB
FLOOR_IMAGES = 256  # a split gets at least one shard per this many images …
FLOOR_SHARDS = (
    32  # … up to this many shards, so that small datasets are written and read in parallel too
)
_OF_SHARDS = (
    "num_shards",
    "examples_per_shard",
    "target_shard_bytes",
)  # options, of which one is given
FRAME_BYTES = 16  # of a TFRecord: length, its CRC, CRC of the data

Bucket = tuple[str, int]  # a split, and a bucket of its order


def count_shards(images: int, record_bytes: float, options: Mapping[str, Any], split: str) -> int:
    """Number of shards of a split, which depends on the data and the options, never on the machine.

    3,000 images of 15 kB are 45 MB: one shard by the target size, 12 by the floor of one per 256
    images, so 12.
    """
    if split == NO_SPLIT:
        return count_reject_shards(images)
    given = options["num_shards"]
    number = given.get(split) if isinstance(given, dict) else given
    if number:
        return int(number)
    most = options["examples_per_shard"]
    if most:
        return math.ceil(images / int(most))
    target = options["target_shard_bytes"]
    if target:
        return max(1, math.ceil(images * record_bytes / int(target)))
    by_size = math.ceil(images * record_bytes / DEFAULT_TARGET_BYTES)
    return max(1, by_size, min(FLOOR_SHARDS, math.ceil(images / FLOOR_IMAGES)))


@dataclasses.dataclass(frozen=True, kw_only=True)
class PlanSettings:
    """What is known about a plan before its input is listed.

    Attributes:
        name, suffix: of the shard files.
        options: `ConvertOptions.data_options`.
        labelled: whether images have labels.
        first: classes that have the first ids, if `options` name none.
    """

    name: str
    suffix: str
    options: Mapping[str, Any]
    labelled: bool
    first: Sequence[str] = ()


def draft_plan(
    survey: Survey, record_bytes: float, settings: PlanSettings, *, codecs: Mapping[str, str]
) -> Plan:
    """Makes the plan without its cuts.

    Args:
        survey: survey of all references.
        record_bytes: mean size of a serialized record, from the sample.
        settings: what is known without the survey.
        codecs: `codec_versions.used_versions`, on the worker that drafts.

    Raises:
        DataError: two classes are one name in two Unicode spellings.
        UsageError: no file fits `layout`, `num_shards` names a split that the data does not have, a
            split of `splits` gets no image, or there would be more than `MOST_SHARDS`.
    """
    counts = dict(sorted(survey.counts.items()))
    options = settings.options
    if not counts:
        raise UsageError(
            "matches no image: `exclude=` leaves out all, or archives hold none", option="input"
        )
    _check_splits(survey, options)
    framed = record_bytes + FRAME_BYTES
    shards = {
        split: count_shards(images, framed, options, split) for split, images in counts.items()
    }
    if (number := sum(shards.values())) > MOST_SHARDS:
        option = next((name for name in _OF_SHARDS if options[name] is not None), _OF_SHARDS[-1])
        images = f"{sum(counts.values()):,} {noun_of(options['encoding'])} of about {record_bytes:,.0f} bytes"
        message = f"{images} would be {number:,} shards, and a dataset has at most {MOST_SHARDS:,}; make them larger"
        raise UsageError(message, option=option, value=options[option] or DEFAULT_TARGET_BYTES)
    return Plan(
        name=settings.name,
        suffix=settings.suffix,
        options=dict(options),
        input_digest=f"{survey.digest:064x}",
        labels=_labels(survey, settings) if settings.labelled else None,
        splits={
            split: SplitPlan(
                matched=images,
                num_shards=shards[split],
                cuts=[],
                class_counts={
                    label: n for (name, label), n in sorted(survey.classes.items()) if name == split
                },
            )
            for split, images in counts.items()
        },
        codecs=dict(codecs),
        generations=f"{survey.generations:064x}",
    )


def _check_splits(survey: Survey, options: Mapping[str, Any]) -> None:
    usable = sorted(survey.counts.keys() - {NO_SPLIT})
    what = noun_of(options["encoding"])
    if not usable:
        _refuse_unfit(survey.counts.total(), survey, options)
    empty = sorted((options.get("splits") or {}).keys() - set(usable))
    if empty:
        problem = f"none of the {survey.counts.total()} {what} falls into {empty[0]}"
        raise UsageError(f"{problem}; increase its share, or leave it out", option="splits")
    given = options["num_shards"]
    if isinstance(given, dict) and (unknown := sorted(given.keys() - set(usable))):
        raise UsageError(
            f"there is no split {unknown[0]}; the data has: {', '.join(usable)}",
            option="num_shards",
        )


def _labels(survey: Survey, settings: PlanSettings) -> list[str]:
    """The class names in the order of their ids: as given, or the first ones, then all others in
    order."""
    found = {label for split, label in survey.classes if split != NO_SPLIT}
    pair = find_two_spellings({*settings.first, *found})
    if pair:
        problem = f"the classes {pair[0]!a} and {pair[1]!a} are one name in two spellings (Unicode NFC and NFD)"
        cure = "use one spelling, by renaming folders or in the table"
        raise DataError(f"{problem}, and would become two classes; {cure}")
    others = sorted(found - {*settings.first})
    if settings.options.get("label_column") and all(
        re.fullmatch(r"-?[0-9]{1,18}", label) for label in others
    ):
        others.sort(key=int)  # so that 0 to n - 1 are their own ids
    return list(settings.options["classes"] or [*settings.first, *others])


def _refuse_unfit(number: int, survey: Survey, options: Mapping[str, Any]) -> NoReturn:
    if "layout" not in options:
        columns = ", ".join(
            f"`{name}={options[name]}`" for name in options if name.endswith("_column")
        )
        problem = f"none of the {number} rows has a usable path, label and split ({columns})"
        raise UsageError(f"{problem}, the first is {survey.first_unfit}", option="table")
    folders = survey.first_unfit.count("/")
    cure = "; use `layout='{label}/*'`"
    if not folders:
        hint = "say where the names hold the class, such as `layout='{label}_{number}.*'`"
        cure = f"; {hint}; or use `layout='*'`, for no classes, or a `table=`"
    problem = f"no file fits: below the common folder the first one is {survey.first_unfit!r}"
    message = f"{problem}, which has {folders + 1} part{'s' if folders else ''}{cure}"
    raise UsageError(message, option="layout", value=options["layout"])


@dataclasses.dataclass(frozen=True, slots=True)
class Draft:
    """A plan without its cuts, and the histogram buckets that contain them.

    Attributes:
        plan: the plan.
        seed: seed for the order.
        ranks: bucket -> ranks of the cuts in its sorted keys.
    """

    plan: Plan
    seed: int
    ranks: dict[Bucket, list[int]]

    def find_candidates(self, refs: Sequence[bytes]) -> Iterator[tuple[Bucket, bytes]]:
        """Yields (bucket, order key) for each encoded reference in such a bucket."""
        orders = order_keys(self.seed, map(key_of, refs))
        numbers = {number for _, number in self.ranks}
        for ref, order, number in zip(refs, orders, buckets_of(orders), strict=True):
            if number in numbers:
                bucket = EncodedRef.parse(ref).split.decode(), number
                if bucket in self.ranks:
                    yield bucket, order

    def pick_cuts(self, bucket: Bucket, orders: Iterable[bytes]) -> list[bytes]:
        """Returns the cuts in a bucket, from all its order keys in any order."""
        found = sorted(orders)
        return [found[rank] for rank in self.ranks[bucket]]

    def finish_plan(self, picked: Iterable[tuple[Bucket, Sequence[bytes]]]) -> Plan:
        """Returns the plan with its cuts, from the (bucket, cuts) that were picked."""
        found = dict(picked)
        cuts: dict[str, list[str]] = {split: [] for split in self.plan.splits}
        for bucket in sorted(self.ranks):
            cuts[bucket[0]] += [order.hex() for order in found[bucket]]
        splits = {
            name: dataclasses.replace(split, cuts=cuts[name])
            for name, split in self.plan.splits.items()
        }
        return dataclasses.replace(self.plan, splits=splits)


def find_cut_buckets(survey: Survey, plan: Plan) -> Draft:
    """Finds the buckets that contain the first image of each shard but the first."""
    ranks: dict[Bucket, list[int]] = {}
    for split, planned in plan.splits.items():
        ends = np.cumsum(survey.buckets[split].counts(), dtype=np.int64)
        firsts = np.array([planned.first_rank(i) for i in range(1, planned.num_shards)], np.int64)
        for rank, bucket in zip(
            firsts.tolist(), np.searchsorted(ends, firsts, side="right").tolist(), strict=True
        ):
            ranks.setdefault((split, bucket), []).append(
                rank - (int(ends[bucket - 1]) if bucket else 0)
            )
    return Draft(plan, survey.seed, ranks)
