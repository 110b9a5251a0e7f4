"""Drafts a plan, and then finds where each shard begins in the order of images.

The keys are never all in memory at once.
"""

import collections
import dataclasses
import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from beam_tfr.layouts.named_classes import suggest_layout
from beam_tfr.planning.survey import Survey, buckets_of, order_keys
from beam_tfr.schema.dataset import MOST_SHARDS, NO_SPLIT, shares_of
from beam_tfr.schema.encoded_ref import EncodedRef, key_of
from beam_tfr.schema.encodings import noun_of
from beam_tfr.schema.errors import DataError, UsageError
from beam_tfr.schema.extensions import FORMAT_OF, OTHER_FILES, has_image_name
from beam_tfr.schema.naming import find_two_spellings
from beam_tfr.schema.plan import Plan, SplitPlan, count_reject_shards
from beam_tfr.schema.renames import original_names, parse_renames
from beam_tfr.schema.spelling import spell_option

DEFAULT_TARGET_BYTES = 100 << 20  # 100 MiB
# A split gets at least one shard per this many images, up to this many shards, so that small
# datasets are written and read in parallel too.
FLOOR_IMAGES = 256
FLOOR_SHARDS = 32
_SIZE_OPTIONS = ("num_shards", "examples_per_shard", "target_shard_bytes")  # at most one is set
FRAME_BYTES = 16  # around a TFRecord: length, its CRC, CRC of the data

_LINE_OF_LIST = re.compile(rf"(?i)\t|\.(?:{'|'.join(FORMAT_OF)})[ ,;]+\S+\Z")
_INTEGER = re.compile(r"-?[0-9]{1,18}")

# Renames all files below the current folder whose paths are not NFC, and merges their folders.
_RENAMING = (
    'rename files in their folder with `python3 -c "import os, unicodedata; [os.renames(old, new) '
    "for folder, _, names in os.walk('.') for old in [os.path.join(folder, name) for name in "
    "names] for new in [unicodedata.normalize('NFC', old)] if not os.path.exists(new)]\"`"
)

Bucket = tuple[str, int]  # a split, and a bucket of its order


def count_shards(images: int, record_bytes: float, options: Mapping[str, Any], split: str) -> int:
    """Computes the number of shards for a split.

    The number depends on the data and the options, never on the machine.

    For example, 3,000 images of 15 kB are 45 MB. The target size would give one shard, but there is
    at least one shard per 256 images, so the number is 12.
    """
    if split == NO_SPLIT:
        return count_reject_shards(images)
    num_shards = options["num_shards"]
    if isinstance(num_shards, dict):
        num_shards = num_shards.get(split)
    if num_shards:
        return int(num_shards)
    most_examples = options["examples_per_shard"]
    if most_examples:
        return math.ceil(images / int(most_examples))
    target_bytes = options["target_shard_bytes"]
    if target_bytes:
        return max(1, math.ceil(images * record_bytes / int(target_bytes)))
    by_size = math.ceil(images * record_bytes / DEFAULT_TARGET_BYTES)
    by_images = math.ceil(images / FLOOR_IMAGES)
    return max(1, by_size, min(FLOOR_SHARDS, by_images))


@dataclasses.dataclass(frozen=True, kw_only=True)
class PlanSettings:
    """The settings of a plan that are known before its input is listed.

    Attributes:
        name, suffix: parts of the names of shard files.
        options: `ConvertOptions.data_options`.
        labelled: whether images have labels.
        first: classes that get the first ids, if `options` names no classes.
    """

    name: str
    suffix: str
    options: Mapping[str, Any]
    labelled: bool
    first: Sequence[str] = ()

    @property
    def gives_classes(self) -> bool:
        """Whether the order of classes is specified, rather than alphabetical."""
        return bool(self.first or self.options["classes"])

    @property
    def allowed_classes(self) -> Sequence[str]:
        """The only allowed classes, by their original names; empty if all classes are allowed."""
        return self.options["classes"] or ()


def draft_plan(
    survey: Survey, record_bytes: float, settings: PlanSettings, *, codecs: Mapping[str, str]
) -> Plan:
    """Builds the plan without its cuts.

    Args:
        survey: survey of all references.
        record_bytes: mean size of a serialized record, from the sample.
        settings: the settings that do not depend on the survey.
        codecs: result of `codec_versions.used_versions` on the worker that drafts the plan.

    Raises:
        DataError: two classes have the same name in two Unicode spellings.
        UsageError: no file matches `layout`, `num_shards` names a split that is not in the data, a
            split in `splits` gets no image, or there would be more than `MOST_SHARDS` shards.
    """
    if not survey.counts:
        raise UsageError(
            "matches no image: `exclude=` leaves out all images, or archives hold no images; "
            "archives within archives are not read: unpack them",
            option="input",
        )
    _check_splits(survey, settings.options)
    labels = _order_classes(survey, settings) if settings.labelled else None
    splits = _draft_splits(survey, record_bytes + FRAME_BYTES, settings.options)
    plan = Plan(
        name=settings.name,
        suffix=settings.suffix,
        options=dict(settings.options),
        input_digest=f"{survey.digest:064x}",
        labels=labels,
        splits=splits,
        codecs=dict(codecs),
        generations=f"{survey.generations:064x}",
    )
    _check_number(plan, record_bytes)
    return plan


def _draft_splits(
    survey: Survey, framed_bytes: float, options: Mapping[str, Any]
) -> dict[str, SplitPlan]:
    """Drafts the splits without their cuts, by name."""
    splits = dict[str, SplitPlan]()
    for split, images in sorted(survey.counts.items()):
        number = count_shards(images, framed_bytes, options, split)
        splits[split] = SplitPlan(matched=images, num_shards=number, cuts=[], class_counts={})
    for (split, label), images in sorted(survey.classes.items()):
        splits[split].class_counts[label] = images
    return splits


def _check_number(plan: Plan, record_bytes: float) -> None:
    """Checks that a plan does not have too many shards.

    Raises:
        UsageError: the plan has too many shards.
    """
    if plan.num_shards <= MOST_SHARDS:
        return
    size_options = [name for name in _SIZE_OPTIONS if plan.options[name] is not None]
    option = size_options[0] if size_options else "target_shard_bytes"
    raise UsageError(
        f"{plan.matched:,} {plan.noun} of about {record_bytes:,.0f} bytes would be "
        f"{plan.num_shards:,} shards, but a dataset has at most {MOST_SHARDS:,}; use larger shards",
        option=option,
        value=plan.options[option] or DEFAULT_TARGET_BYTES,
    )


def _check_splits(survey: Survey, options: Mapping[str, Any]) -> None:
    """Checks that the data has images, and that it has all splits that are named in options.

    Raises:
        UsageError: the data has no images, or a split is missing.
    """
    splits = sorted(survey.counts.keys() - {NO_SPLIT})
    if not splits:
        raise _nothing_usable(survey, options)
    empty = [split for split in shares_of(options) if split not in splits]
    if empty:
        raise _empty_split(survey, options, empty[0])
    num_shards = options["num_shards"]
    if not isinstance(num_shards, dict):
        return
    unknown = sorted(num_shards.keys() - {*splits})
    if unknown:
        raise UsageError(
            f"there is no split {unknown[0]}; the data has: {', '.join(splits)}",
            option="num_shards",
        )


def _empty_split(survey: Survey, options: Mapping[str, Any], split: str) -> UsageError:
    """Creates the exception for a split that has a fraction, but gets no image."""
    problem = (
        f"none of the {survey.counts.total()} {noun_of(options['encoding'])} falls into {split}"
    )
    cure = ""
    if _has_groups(options):
        problem += "; groups stay together"
        if options.get("stratify"):
            problem += ", and there are too few groups, or they are too large"
        else:
            cure = "use `stratify=`, which divides groups by their sizes, or "
    if options.get("folds"):
        return UsageError(f"{problem}; {cure}use fewer", option="folds", value=options["folds"])
    return UsageError(f"{problem}; {cure}increase its fraction, or leave it out", option="splits")


def _has_groups(options: Mapping[str, Any]) -> bool:
    """Whether images form groups, each of which stays in one split."""
    return bool(options.get("group_column")) or "{group}" in options.get("layout", "")


def _nothing_usable(survey: Survey, options: Mapping[str, Any]) -> UsageError:
    """Creates the exception for an input in which no image has a split."""
    if "layout" in options:
        return _no_fitting_file(survey, options["layout"])
    return _no_usable_row(survey, options)


def _no_usable_row(survey: Survey, options: Mapping[str, Any]) -> UsageError:
    """Creates the exception for a table in which no row has a split."""
    names = [name for name in options if name.endswith("_column")]
    columns = ", ".join(spell_option(name, options[name]) for name in names)
    rows = survey.counts.total()
    return UsageError(
        f"none of the {rows} rows has a usable path, label and split ({columns}); "
        f"the first is {survey.first_unfit}: {survey.unfit_detail}",
        option="table",
    )


def _no_fitting_file(survey: Survey, layout: str) -> UsageError:
    """Creates the exception for files that do not match the layout."""
    if "\\" in survey.first_unfit:
        return _name_with_backslash(survey.first_unfit, layout)
    if _LINE_OF_LIST.search(survey.first_unfit):
        return _name_with_value(survey.first_unfit)
    if not has_image_name(survey.first_unfit):
        return _name_without_image(survey.first_unfit)
    problem = f"no file fits: below the common folder the first one is {survey.first_unfit!r}"
    folders = survey.first_unfit.count("/")
    if folders:
        message = f"{problem}, which has {folders + 1} parts; use `layout='{{label}}/*'`"
    else:
        message = f"{problem}, which has 1 part; {_describe_flat(survey.first_unfit)}"
    return UsageError(message, option="layout", value=layout)


def _describe_flat(name: str) -> str:
    """Returns a sentence that says what to do about files that are not in folders."""
    layout = suggest_layout(name)
    if not layout:
        return (
            "use `layout='*'`, for no classes, a `layout=` with {label} where the names hold the "
            "class, and {number} or * elsewhere, or a `table=` with the class of each"
        )
    return (
        f"show where the names hold the class, as in {spell_option('layout', layout)}; or use "
        "`layout='*'`, for no classes, or a `table=`"
    )


def _name_with_value(name: str) -> UsageError:
    """Creates the exception for unfit files, if the first name is a line of a list with values."""
    return UsageError(
        f"no file fits: the first one is {name!r}, a path followed by values, but an "
        "`input_list=` has paths alone: save it as CSV, with a first line that names each column, "
        "such as path,class, and read it with `table=`",
        option="input",
    )


def _name_without_image(name: str) -> UsageError:
    """Builds the error for files without an image extension that do not match the layout."""
    for other in OTHER_FILES:
        if other.names.search(name):
            return UsageError(f"{other.noun}, such as {name!r}, {other.cure}", option="input")
    return UsageError(
        f"{name!r} has no image extension: images without one need a `layout=` that matches "
        "them, such as `layout='*'`, for no classes; files that hold several images, such as "
        "videos and arrays, must be unpacked; tables, such as .csv, .parquet and COCO's .json, are "
        "read with `table=`",
        option="input",
    )


def _name_with_backslash(name: str, layout: str) -> UsageError:
    """Creates the exception for unfit files, if the first name has a backslash."""
    return UsageError(
        f"no file fits: the first one is {name}, and a backslash separates folders on Windows "
        "only. Unpack a tar with `tar --transform='s,\\\\,/,g' -xf FILE`, or create it again; "
        r"rename files in bash with `find . -type f -name '*\\*' | while IFS= read -r old; do "
        r'new=${old//\\/\/}; mkdir -p "${new%/*}"; mv -n "$old" "$new"; done`',
        option="layout",
        value=layout,
    )


def _order_classes(survey: Survey, settings: PlanSettings) -> list[str]:
    """Returns the class names in the order of their ids.

    The order is that of `classes=` if this option is specified; otherwise, `first` comes before all
    other classes.

    Raises:
        DataError: two classes have the same name in two Unicode spellings.
    """
    classes = {label for split, label in survey.classes if split != NO_SPLIT}
    pair = find_two_spellings({*settings.first, *classes})
    if pair:
        raise DataError(
            f"the classes {pair[0]!a} and {pair[1]!a} are one name in two spellings (Unicode NFC "
            f"and NFD), and would become two classes; {_RENAMING}; in a table, use "
            "unicodedata.normalize('NFC', name)"
        )
    renames = parse_renames(settings.options.get("rename", ()))
    given_classes = settings.options["classes"]
    if given_classes:
        return [*dict.fromkeys(renames.get(label, label) for label in given_classes)]
    # Renaming changes no ids: the original names determine the order.
    originals = original_names(classes - {*settings.first}, renames)
    others = sorted(originals, key=lambda label: (originals[label], label))
    are_integers = all(map(_INTEGER.fullmatch, originals.values()))
    if are_integers and settings.options.get("label_column"):
        others.sort(key=lambda label: int(originals[label]))  # then 0 to n - 1 are their own ids
    return [*settings.first, *others]


@dataclasses.dataclass(frozen=True, slots=True)
class Draft:
    """A plan without its cuts, and the histogram buckets that contain the cuts.

    Attributes:
        plan: the plan.
        seed: seed for the order.
        ranks: bucket -> ranks of the cuts among the sorted keys of the bucket.
    """

    plan: Plan
    seed: int
    ranks: dict[Bucket, list[int]]

    def find_candidates(self, refs: Sequence[bytes]) -> Iterator[tuple[Bucket, bytes]]:
        """Yields (bucket, order key) for each encoded reference in a bucket with cuts."""
        orders = order_keys(self.seed, map(key_of, refs))
        numbers = {number for _, number in self.ranks}
        for ref, order, number in zip(refs, orders, buckets_of(orders), strict=True):
            if number in numbers:
                bucket = EncodedRef.parse(ref).split.decode(), number
                if bucket in self.ranks:
                    yield bucket, order

    def pick_cuts(self, bucket: Bucket, orders: Iterable[bytes]) -> list[bytes]:
        """Returns the cuts in a bucket, from all of its order keys in any order."""
        ordered = sorted(orders)
        return [ordered[rank] for rank in self.ranks[bucket]]

    def finish_plan(self, picked: Iterable[tuple[Bucket, Sequence[bytes]]]) -> Plan:
        """Returns the plan with its cuts; `picked` has (bucket, cuts) for each bucket with cuts."""
        cuts_of_bucket = dict(picked)
        cuts = collections.defaultdict[str, list[str]](list)
        for bucket in sorted(self.ranks):
            split, _ = bucket
            cuts[split] += [order.hex() for order in cuts_of_bucket[bucket]]
        splits = dict[str, SplitPlan]()
        for name, split_plan in self.plan.splits.items():
            splits[name] = dataclasses.replace(split_plan, cuts=cuts[name])
        return dataclasses.replace(self.plan, splits=splits)


def find_cut_buckets(survey: Survey, plan: Plan) -> Draft:
    """Finds the buckets that contain the first images of all shards except the first shard."""
    ranks = collections.defaultdict[Bucket, list[int]](list)
    for split, planned in plan.splits.items():
        firsts = [planned.first_rank(number) for number in range(1, planned.num_shards)]
        for bucket, rank in survey.buckets[split].locate(firsts):
            ranks[split, bucket].append(rank)
    return Draft(plan, survey.seed, dict(ranks))
