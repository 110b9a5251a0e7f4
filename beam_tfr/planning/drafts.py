"""The plan without its cuts: how many files each split gets, and which classes there are."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping
from typing import Any, NoReturn

from beam_tfr.planning.survey import Survey
from beam_tfr.schema import NO_SPLIT, Plan, SplitPlan, UsageError, things

DEFAULT_TARGET_BYTES = 100 << 20  # 100 MiB
FLOOR_IMAGES = 256  # a split gets at least one shard per so many images …
FLOOR_SHARDS = 32  # … up to so many, so that small datasets are written and read in parallel too
MOST_EMPTY_SHARDS = 10_000  # files of a split; more only where it has more images
REJECTS_PER_SHARD = 10_000  # of images that fit no split
FRAME_BYTES = 16  # of a TFRecord: length, its CRC, CRC of the data


def count_shards(images: int, record_bytes: float, options: Mapping[str, Any], split: str) -> int:
    """How many files a split gets; depends on the data and the options alone, never on the machine.

    3,000 images of 15 kB come to 45 MB: one file by the target size, 12 by the floor of one per 256 images, so 12.
    """
    if split == NO_SPLIT:
        return math.ceil(images / REJECTS_PER_SHARD)
    num_shards = options["num_shards"]
    if isinstance(num_shards, dict) and split in num_shards:
        return int(num_shards[split])
    if isinstance(num_shards, int):
        return num_shards
    most: int | None = options["examples_per_shard"]
    if most is not None:
        return math.ceil(images / most)
    target: int | None = options["target_shard_bytes"]
    if target is not None:
        return max(1, math.ceil(images * record_bytes / target))
    by_size = math.ceil(images * record_bytes / DEFAULT_TARGET_BYTES)
    return max(1, by_size, min(FLOOR_SHARDS, math.ceil(images / FLOOR_IMAGES)))


def draft_plan(
    survey: Survey,
    record_bytes: float,
    *,
    name: str,
    suffix: str,
    options: Mapping[str, Any],
    labelled: bool,
    codecs: Mapping[str, str],
) -> Plan:
    """The plan without its cuts.

    Args:
        survey: of all references.
        record_bytes: mean size of a serialized record, from the sample.
        name, suffix: of the shard files.
        options: `ConvertOptions.data_options`.
        labelled: whether the layout names a label.
        codecs: `images.codec_versions`.

    Raises:
        UsageError: no file fits --layout, --num_shards names a split that the data does not have, or --splits one
            that gets no image.
    """
    counts = dict(sorted(survey.counts.items()))
    usable = [split for split in counts if split != NO_SPLIT]
    if not counts:
        raise UsageError("--exclude: leaves out all files that --input matches")
    what = things(options["encoding"])
    if not usable:
        _refuse_misfits(sum(counts.values()), survey.misfit, options)
    if empty := sorted((options.get("splits") or {}).keys() - set(usable)):
        raise UsageError(
            f"--splits: none of the {sum(counts.values())} {what} falls into {empty[0]}; give it a larger share, or "
            "leave it out"
        )
    if isinstance(options["num_shards"], dict) and (unknown := sorted(options["num_shards"].keys() - set(usable))):
        raise UsageError(f"--num_shards: there is no split {unknown[0]}; the data has: {', '.join(usable)}")
    given = options["num_shards"]
    for split in usable:
        count = given.get(split, 0) if isinstance(given, dict) else given or 0
        if count > max(MOST_EMPTY_SHARDS, counts[split]):
            raise UsageError(
                f"--num_shards {count}: split {split} has {counts[split]} {what}; at most {MOST_EMPTY_SHARDS} files, "
                "or one for each of them"
            )
    labels = None
    if labelled:
        found = {label for split, label in survey.classes if split != NO_SPLIT}
        labels = list(options["classes"] or _in_order(found, numbers=bool(options.get("label_column"))))
    return Plan(
        name=name,
        suffix=suffix,
        options=dict(options),
        input_digest=f"{survey.digest:064x}",
        labels=labels,
        splits={
            split: SplitPlan(
                matched=images,
                num_shards=count_shards(images, record_bytes + FRAME_BYTES, options, split),
                cuts=[],
                class_counts={label: n for (of, label), n in sorted(survey.classes.items()) if of == split},
            )
            for split, images in counts.items()
        },
        codecs=dict(codecs),
        generations=f"{survey.generations:064x}",
    )


def _refuse_misfits(number: int, first: str, options: Mapping[str, Any]) -> NoReturn:
    if "layout" not in options:
        raise UsageError(
            f"--table: none of the {number} rows has all that is needed of it ("
            f"{', '.join(f'--{name} {options[name]}' for name in options if name.endswith('_column'))}), the first is "
            f"{first}"
        )
    raise UsageError(
        f"--layout {options['layout']}: none of the {number} files has such a path below the folder "
        f"that all patterns share, the first is {first!r}; write a layout of as many parts, such as "
        f"{'/'.join(['{label}'] * min(1, first.count('/')) + ['*'])}"
    )


def _in_order(labels: Iterable[str], *, numbers: bool) -> list[str]:
    """Sorted as texts; `numbers`: as numbers where all are, so that 0 to n - 1 are their own ids."""
    found = sorted(labels)
    if numbers and all(re.fullmatch(r"-?[0-9]{1,18}", label) for label in found):
        found.sort(key=int)
    return found
